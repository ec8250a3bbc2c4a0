// A module of a user's own as a value: its forward program and what is known of it. It comes from
// a folder that tracestep.capture (Python) writes, and of which nothing is executed. Weights and
// example inputs stay in the folder's files (weights/captured_tensors.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// Files of such a folder. The safetensors may be missing: the weights of a module without storage,
// constants and inputs where there are none.
inline constexpr const char *kCapturedProgram = "program.txt", *kCapturedIndex = "capture.json",
                            *kCapturedWeights = "weights.safetensors",
                            *kCapturedConstants = "constants.safetensors",
                            *kCapturedInputs = "inputs.safetensors";

// The outputs that a captured program may have.
inline constexpr const char *kLossOutput = "loss", *kLogitsOutput = "logits";

enum class InputRole : std::uint8_t {
  kTokens,   // ids of tokens below `high`: of a text, or drawn
  kTargets,  // the tokens behind them
  kGiven,    // whatever the example has
  kBatch,    // the number of the batch in the run, i64 [1]: what dropout depends on
};

struct CapturedInput {
  std::string name;
  InputRole role = InputRole::kGiven;
  std::int64_t high = 0;  // of tokens and targets; else 0
};

// The largest relative differences from the module that capture found.
struct CaptureCheck {
  double loss = 0.0, gradients = 0.0;
  std::string worst;  // the parameter with the largest difference
};

// A group of parameters of the module's optimizer. Those in none are not moved.
struct OptimizerGroup {
  std::set<std::string> parameters;
  double lr = 0.0, weight_decay = 0.0;
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
};

struct CapturedModel {
  std::filesystem::path folder;
  std::string name;                         // of the module's class
  std::string torch;                        // the version of PyTorch that exported it
  std::string digest;                       // a hash of program and index
  Program program;                          // forward, functional: "loss" [] and perhaps "logits"
  std::vector<CapturedInput> inputs;        // all of the program's
  std::map<std::string, std::string> tied;  // other name of a leaf -> the leaf
  std::set<std::string> frozen;             // constants that are parameters of the module
  std::set<std::string> buffers;            // constants that the module saves with its weights
  std::optional<CaptureCheck> check;        // nullopt: nothing was compared
  std::map<std::string, std::int64_t> patterns;  // composites that were found
  std::string optimizer = {};                    // the class of its optimizer, if one was given
  std::vector<OptimizerGroup> groups = {};       // of that optimizer
  // Batch and context of the first input of tokens [B,T]; else B of the first input [B,…], and 1.
  std::int64_t batch = 1, context = 1;
  std::int64_t vocab = 1;   // the largest `high`; 1 without tokens
  std::int64_t blocks = 0;  // numbered parts with nodes of their own, "model.layers.0" and so on
  std::vector<std::string> block_parts;  // of most blocks, "mlp" and so on; the smallest first
  DType weights = DType::kF32;           // of most elements of its floating parameters
  bool is_float64 = false;  // these are, for the device reference alone; `weights` is kF32

  const CapturedInput* find_input(std::string_view name) const;
  // True if rows of a text can be its inputs: tokens [B,T], perhaps targets, and nothing else.
  bool takes_text() const;
};

// True if the path is a folder of a captured module, whatever is in it.
bool is_captured_folder(const std::filesystem::path& path);

// Reads a folder, or takes what this process has read from the same files before. Errors:
// kInput naming the file, and the line or the key, for anything that is not as
// docs/your-module.md says.
std::shared_ptr<const CapturedModel> captured_at(const std::filesystem::path& folder);

// As above, from the two texts; `folder` is for messages and for the files beside them.
CapturedModel captured_from(const std::string& program, const std::string& index,
                            const std::filesystem::path& folder);

// The forward program with some of its outputs, and without the nodes and inputs that only the
// others need. Error{kUsage} where the module has no logits and they are asked for.
Program captured_program(const CapturedModel& model, const std::vector<std::string>& outputs);

// Parameters of the program: elements of its parameter leaves, each once. Frozen ones are
// constants, and are not counted.
std::int64_t parameter_count(const CapturedModel& model);
// FLOPs of the products of a forward pass.
double forward_flops(const CapturedModel& model);

}  // namespace tracestep
