// A step of PyTorch asks its allocator for this, in order: recorded under fake tensors by
// tracestep.capture, taken from a memory snapshot, or estimated from a program of ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tracestep {

struct MemoryRun;  // lab/memory/run.h

inline constexpr const char* kRecordedStep = "pytorch-step.json";  // in a captured module's folder

enum class PytorchPart : std::uint8_t { kSetup, kForward, kBackward, kRecompute, kOptimizer };

// A birth, or where `bytes` is 0 the death of the block of that number.
struct AllocationEvent {
  std::uint32_t block = 0;  // numbers are dense, from 0, in the order of births
  PytorchPart part = PytorchPart::kSetup;
  std::uint32_t site = 0, module = 0, op = 0;  // in AllocationList::names
  std::int64_t bytes = 0;
  std::int64_t stream = 0;
};

// Bytes of a product's workspace, which the card decides (PytorchCard::workspace_bytes).
inline constexpr std::int64_t kLibraryWorkspace = -1;

struct AllocationList {
  std::string torch;                      // the version that ran it; empty: none did
  bool is_recorded = false;               // false: estimated
  std::vector<std::string> names = {""};  // sites "model.py:84 forward", modules, ops
  std::vector<AllocationEvent> events;
  std::vector<std::size_t> steps;  // the first event of each
  std::uint32_t blocks = 0;

  const std::string& name(std::uint32_t number) const { return names[number]; }
};

// Reads a recording: a JSON object of "format", "torch", "phases", "names", "steps" and "events",
// in which [number, bytes, site, module, op, phase] is a birth and [-number] a death
// (docs/your-module.md). Error{kInput} naming the file and the event for anything else.
AllocationList read_recorded_step(const std::filesystem::path& path);
AllocationList recorded_step_from(const std::string& text, const std::string& where);

// The same step by rules: the buffers of our eager program in its order, and what PyTorch adds:
// the optimizer's lists of temporaries, which `is_fused` leaves out, and workspaces. `has_sources`:
// lines of the nodes are the user's, as of a captured module, and sites name them.
AllocationList estimated_step(const MemoryRun& run, bool is_fused, bool has_sources);

}  // namespace tracestep
