// The list of requests that a step of PyTorch sends to its allocator, in order: recorded with fake
// tensors by tracestep.capture, read from a memory snapshot, or estimated from a program of ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/enum_words.h"

namespace tracestep {

struct MemoryRun;  // lab/memory/run.h

// The name of the recording in a captured module's folder.
inline constexpr const char* kRecordedStep = "pytorch-step.json";

enum class PytorchPart : std::uint8_t { kSetup, kForward, kBackward, kRecompute, kOptimizer };
TRACESTEP_WORDS(PytorchPart, "before the steps", "forward", "backward", "recompute", "optimizer");

// An allocation of a block; with `bytes` 0, the freeing of that block.
struct AllocationEvent {
  // The number of the block; blocks are numbered from 0 in the order of allocation.
  std::uint32_t block = 0;
  PytorchPart part = PytorchPart::kSetup;
  std::uint32_t site = 0, module = 0, op = 0;  // Indices into AllocationList::names.
  std::int64_t bytes = 0;
  std::int64_t stream = 0;
};

// Stands for the size of a product's workspace, which depends on the card
// (PytorchCard::workspace_bytes).
inline constexpr std::int64_t kLibraryWorkspace = -1;

struct AllocationList {
  std::string torch;         // The version of PyTorch that ran the step; empty: none did.
  bool is_recorded = false;  // False: the list is estimated.
  // Names of sites ("model.py:84 forward"), modules and ops.
  std::vector<std::string> names = {""};
  std::vector<AllocationEvent> events;
  std::vector<std::size_t> steps;  // The index of each step's first event.
  std::uint32_t blocks = 0;

  const std::string& name(std::uint32_t number) const { return names[number]; }
};

// Reads a recording: a JSON object with "format", "torch", "phases", "names", "steps" and "events".
// In "events", [number, bytes, site, module, op, phase] is an allocation and [-number] a freeing
// (docs/your-module.md). Throws Error{kInput} naming the file and the event for anything else.
AllocationList read_recorded_step(const std::filesystem::path& path);
AllocationList recorded_step_from(const std::string& text, const std::string& where);

// Estimates the list of a step: the buffers of our eager program in its order, and what PyTorch
// allocates besides, which are the optimizer's temporaries (none with `is_fused`) and workspaces.
// `has_sources`: the nodes have source lines of the user, as in a captured module, and sites name
// them.
AllocationList estimated_step(const MemoryRun& run, bool is_fused, bool has_sources);

}  // namespace tracestep
