"""PPO in one file, in the style of CleanRL: self-play without a language model, on a game seen as numbers.

    uv run --with torch examples/ppo_in_numbers.py KuhnPoker-v0
    uv run --with torch examples/ppo_in_numbers.py ConnectFour-v0 --steps 60

One network plays all seats. At the end it prints the win rate and mean return against random play, and NashConv if the
game is small enough to compute it (0 is an equilibrium).
"""

import argparse
import contextlib

import numpy as np
import torch
from torch import nn

import legos_envs
from legos_envs import exact
from legos_envs.wrappers import FillSeats
from legos_envs.wrappers.numeric import Numeric

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("env", nargs="?", default="KuhnPoker-v0")
p.add_argument("--steps", type=int, default=100, help="updates")
p.add_argument("--turns", type=int, default=2048, help="turns an update learns from")
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--entropy", type=float, default=0.02, help="weight of the entropy bonus; it falls to a tenth")
p.add_argument("--gamma", type=float, default=0.99)
p.add_argument("--lam", type=float, default=0.95, help="GAE's lambda")
p.add_argument("--epochs", type=int, default=4)
p.add_argument("--clip", type=float, default=0.2)
p.add_argument("--games", type=int, default=400, help="games against random play at the end")
p.add_argument("--seed", type=int, default=0)
args = p.parse_args()
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)


def make(fill=None):
    env = legos_envs.make(args.env)
    return Numeric(FillSeats(env, fill) if fill else env)


class Agent(nn.Module):
    """Logits of the legal moves, and the value of the observation."""

    def __init__(self, inputs, actions, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)

    def forward(self, seen, mask):
        hidden = self.body(seen)
        logits = self.actor(hidden).masked_fill(mask == 0, -1e9)
        return torch.distributions.Categorical(logits=logits), self.critic(hidden).squeeze(-1)


envs = [make() for _ in range(64)]
seat = envs[0].possible_agents[0]
agent = Agent(envs[0].observation_space(seat)["observation"].shape[0], envs[0].action_space(seat).n)
optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)


@torch.no_grad()
def act(seen):
    """Actions for a list of observations, with their log-probabilities and values."""
    dist, value = agent(*(torch.as_tensor(np.stack([o[key] for o in seen])) for key in ("observation", "action_mask")))
    action = dist.sample()
    return action.tolist(), dist.log_prob(action).tolist(), value.tolist()


def collect():
    """Plays whole episodes in all envs until there are enough turns; each seat of an episode is one trajectory."""
    done, running = [], {}
    for env in envs:
        env.reset(seed=int(rng.integers(2**31)))
    while sum(map(len, done)) < args.turns:
        seen = [env.observe(env.agent_selection) for env in envs]
        for i, (env, o, action, logp, value) in enumerate(zip(envs, seen, *act(seen))):
            running.setdefault((i, env.agent_selection), []).append([o, action, logp, value, 0.0])
            env.step(action)
            for name, reward in env.rewards.items():  # goes to its agent's last turn
                if (i, name) in running:
                    running[i, name][-1][4] += reward
            if all(env.terminations.values()) or all(env.truncations.values()):
                done += [running.pop((i, name)) for name in env.possible_agents if (i, name) in running]
                env.reset(seed=int(rng.integers(2**31)))
    return done


def learn(trajectories, entropy):
    rows = []
    for turns in trajectories:
        advantage, after = 0.0, 0.0
        for o, action, logp, value, reward in reversed(turns):
            advantage = reward + args.gamma * after - value + args.gamma * args.lam * advantage
            after = value
            rows.append((o["observation"], o["action_mask"], action, logp, advantage, advantage + value))
    seen, mask, action, logp, advantage, target = (torch.as_tensor(np.array(column)) for column in zip(*rows))
    logp, advantage, target = logp.float(), advantage.float(), target.float()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    for _ in range(args.epochs):
        for batch in torch.randperm(len(rows)).split(256):
            dist, value = agent(seen[batch], mask[batch])
            ratio = (dist.log_prob(action[batch]) - logp[batch]).exp()
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            gain = torch.min(ratio * advantage[batch], clipped * advantage[batch]).mean()
            loss = -gain + 0.5 * (value - target[batch]).pow(2).mean() - entropy * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def against_random():
    """Mean return and share of games won, alternating seats."""
    returns = []
    for game in range(args.games):
        me = envs[0].possible_agents[game % len(envs[0].possible_agents)]
        env = make({other: "random" for other in envs[0].possible_agents if other != me})
        env.reset(seed=10**6 + game)
        total = 0.0
        for _ in env.agent_iter():
            o, reward, *ended, _ = env.last()
            total += reward
            env.step(None if any(ended) else act([o])[0][0])
        returns.append(total)
    return np.mean(returns), np.mean(np.array(returns) > 0)


def policy(infoset):
    """The network as a policy over information sets, for `exact`."""
    numbers, bare = envs[0].numbers, envs[0].unwrapped
    seen = np.array(numbers.read(bare.observation_in(infoset)["messages"][0]["content"]), np.float32)
    mask = np.array([move in infoset.legal for move in numbers.moves], np.int8)
    with torch.no_grad():
        dist, _ = agent(torch.as_tensor(seen)[None], torch.as_tensor(mask)[None])
    shares = dict(zip(numbers.moves, dist.probs[0].tolist()))
    return {move: shares[move] for move in infoset.legal}


def report(when):
    mean, won = against_random()
    line = f"{when}: against random play, mean return {mean:+.3f}, won {won:.3f}"
    with contextlib.suppress(AttributeError, ValueError):  # no exact game, or one too large
        line += f"; NashConv {exact.nash_conv(envs[0].unwrapped.game, policy):.3f}"
    print(line, flush=True)


report("before")
for step in range(args.steps):
    share = 1 - step / args.steps
    optimizer.param_groups[0]["lr"] = args.lr * share
    learn(collect(), args.entropy * (0.1 + 0.9 * share))
report("after")
