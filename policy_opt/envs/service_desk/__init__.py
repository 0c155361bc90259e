"""A customer-service desk over a real SQLite database: tasks, scripted user, tools, oracle, agents."""

from axiomrm.policy_opt.envs.service_desk.agents import Expert, Flawed
from axiomrm.policy_opt.envs.service_desk.env import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.phrases import Style
from axiomrm.policy_opt.envs.service_desk.tasks import KINDS, Profile, sample_task

__all__ = ["KINDS", "Expert", "Flawed", "Profile", "ServiceDesk", "Style", "sample_task"]
