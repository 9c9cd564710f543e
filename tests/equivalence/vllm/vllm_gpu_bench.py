"""What `make gpu ENGINES=vllm` measures, on the CPU and small."""

from __future__ import annotations

import pytest

from benchmarks.gpu import GpuBenchOptions, vllm_exactness, vllm_model

OPTIONS = GpuBenchOptions(device="cpu", shapes=("tiny",), engines=("vllm",), rounds=1, seconds=0.2)


def test_linked_answers_are_those_of_a_full_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_exactness, "STARTS", starts := vllm_exactness.STARTS[:2])  # another compiles, see below
    *_, (name, rows) = vllm_exactness.measure("vllm-exactness", OPTIONS)
    assert name == "vllm-exactness"
    assert [row for row in rows if row["exact"] != "yes"] == []
    started = {(row["model"], row["dtype"]) for row in rows}
    assert started == {(f"Llama, {how}", str(dtype).removeprefix("torch.")) for dtype, how in starts}
    assert sum("eighth token" in str(row["case"]) for row in rows) == len(rows) / 2


def test_first_tokens_and_what_several_clients_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_model, "CLIENTS", (1, 4))
    written = dict(vllm_model.measure("vllm-tiny", OPTIONS))
    assert set(written) == {"first_token", "stages", "capture", "served"}
    assert {row["case"] for row in written["first_token"]} == {"stock", "exact", "floor", "ram", "disk"}
    assert {row["stage"] for row in written["stages"] if row["linker"] == "naive"} >= {"place"}
    served = written["served"]
    assert {(row["linker"], row["clients"]) for row in served} == {
        (linker, clients) for linker in ("full", "auto", "fast", "naive") for clients in (1, 4)
    }
    assert all(row["requests"] >= 2 * row["clients"] for row in served), "each client has asked in each round"
