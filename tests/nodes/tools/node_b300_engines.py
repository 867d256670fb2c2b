"""The two B300 nodes and their engines."""

from __future__ import annotations

import node_b300
from node_writer import Node


def one_board() -> Node:
    """8 B300 of one baseboard, one engine."""
    engines = """\
engines:
  kimi:
    gpus: [0, 1, 2, 3, 4, 5, 6, 7]
    port: 8000
    launch: {command: [vllm, serve], model: kimi, served_model_name: kimi, rdma: true}
"""
    return node_b300.node(
        1, "b300-roce", 1, engines, "8-GPU HGX B300, eight four-plane CX8, liquid cooled, healthy"
    )


def two_boards() -> Node:
    """16 B300 of two baseboards, an engine on each."""
    engines = """\
engines:
  glm:
    gpus: [0, 1, 2, 3, 4, 5, 6, 7]
    port: 8001
    launch: {command: [vllm, serve], model: glm, served_model_name: glm, rdma: true}
  kimi:
    gpus: [8, 9, 10, 11, 12, 13, 14, 15]
    port: 8002
    launch: {command: [vllm, serve], model: kimi, served_model_name: kimi, rdma: true}
"""
    return node_b300.node(
        2, "b300-x16", 2, engines, "Two HGX B300 baseboards in one host, two engines, healthy"
    )
