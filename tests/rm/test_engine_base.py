import pytest

from axiomrm.errors import ConfigError
from axiomrm.rm.engines.base import Sampling


@pytest.mark.parametrize("tokens", [0, -1])
def test_there_is_a_token_to_write(tokens: int) -> None:
    with pytest.raises(ConfigError, match=f"max_new_tokens {tokens}: at least 1"):
        Sampling(max_new_tokens=tokens)


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_a_temperature_is_a_number_from_zero_up(temperature: float) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        Sampling(temperature=temperature)
