"""Cold-start data: rollouts of scripted agents and the judge examples made of them."""
