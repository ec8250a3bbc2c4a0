// A user's module as a value: its forward program, and what is known about it. It is read from a
// folder that tracestep.capture (Python) writes; nothing in the folder is executed. Weights and
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

// Names of the files in a captured module's folder. The safetensors files may be missing: weights
// if the module had no storage, and constants and inputs if it has none.
inline constexpr const char *kCapturedProgram = "program.txt", *kCapturedIndex = "capture.json",
                            *kCapturedWeights = "weights.safetensors",
                            *kCapturedConstants = "constants.safetensors",
                            *kCapturedInputs = "inputs.safetensors";

// The outputs that a captured program may have.
inline constexpr const char *kLossOutput = "loss", *kLogitsOutput = "logits";

enum class InputRole : std::uint8_t {
  kTokens,   // Token ids below `high`, from a text or drawn.
  kTargets,  // The tokens that follow them.
  kGiven,    // Any values, which the example has.
  kBatch,    // The number of the batch in the run, i64 [1], on which dropout depends.
};

struct CapturedInput {
  std::string name;
  InputRole role = InputRole::kGiven;
  std::int64_t high = 0;  // The bound on tokens and targets; 0 for other inputs.
};

// The largest relative differences between the program and the module, as capture measured them.
struct CaptureCheck {
  double loss = 0.0, gradients = 0.0;
  std::string worst;  // The parameter with the largest difference.
};

// A group of parameters of the module's optimizer. Parameters in no group are not updated.
struct OptimizerGroup {
  std::set<std::string> parameters;
  double lr = 0.0, weight_decay = 0.0;
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
};

struct CapturedModel {
  std::filesystem::path folder;
  std::string name;    // The name of the module's class.
  std::string torch;   // the version of PyTorch that exported it
  std::string digest;  // a hash of program and index
  // The forward program, without updates; its outputs are "loss" [] and perhaps "logits".
  Program program;
  std::vector<CapturedInput> inputs;  // All inputs of the program.
  // Further names of leaves, each with the leaf that it stands for.
  std::map<std::string, std::string> tied;
  std::set<std::string> frozen;  // Names of constants that are parameters of the module.
  // Names of constants that the module saves together with its weights.
  std::set<std::string> buffers;
  std::optional<CaptureCheck> check;  // The comparison with the module; nullopt: none was made.
  std::map<std::string, std::int64_t> patterns;  // How often each composite op was recognised.
  std::string optimizer = {};  // The class of the module's optimizer, if one was given.
  std::vector<OptimizerGroup> groups = {};  // The groups of that optimizer.
  // Batch and context, from the first input of tokens [B,T]; without one, B of the first input
  // [B,…], and 1.
  std::int64_t batch = 1, context = 1;
  std::int64_t vocab = 1;  // The largest `high` of all inputs; 1 without tokens.
  // How many numbered parts such as "model.layers.0" have nodes of their own.
  std::int64_t blocks = 0;
  // The names of parts that at least half of the blocks have, such as "mlp", the smallest first.
  std::vector<std::string> block_parts;
  DType weights = DType::kF32;  // The dtype of most elements in floating parameters.
  // True: the parameters are float64, which only the device reference can compute; `weights` is
  // then kF32.
  bool is_float64 = false;

  const CapturedInput* find_input(std::string_view name) const;
  // True if rows of a text can be its inputs: it has tokens [B,T], perhaps targets, and nothing
  // else.
  bool takes_text() const;
};

// True if the path is a folder of a captured module, whatever is in it.
bool is_captured_folder(const std::filesystem::path& path);

// Reads a folder; unchanged files are read only once in a process. Throws Error{kInput} naming the
// file, and the line or the key, for anything that docs/your-module.md does not allow.
std::shared_ptr<const CapturedModel> captured_at(const std::filesystem::path& folder);

// Reads a module from the two texts; `folder` is for messages and for the folder's other files.
CapturedModel captured_from(const std::string& program, const std::string& index,
                            const std::filesystem::path& folder);

// Returns the forward program with some of its outputs, and without the nodes and inputs that only
// the others need. Error{kUsage} where the module has no logits and they are asked for.
Program captured_program(const CapturedModel& model, const std::vector<std::string>& outputs);

// Returns the number of elements in the program's parameters, each counted once. Frozen parameters
// are constants and not counted.
std::int64_t parameter_count(const CapturedModel& model);
// Returns the FLOPs of the matrix products in a forward pass.
double forward_flops(const CapturedModel& model);

}  // namespace tracestep
