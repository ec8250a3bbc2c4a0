// Reads and writes adapter_config.json, in which PEFT describes adapters.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/adapters.h"

namespace tracestep {

inline constexpr const char* kPeftConfig = "adapter_config.json";

// The adapters in a folder, with `from` set to it. Throws Error{kInput} naming the file if they are
// no LoRA, or a variant that is computed in another way (DoRA, ranks by layer, trained biases, …).
Adapters read_peft_config(const std::filesystem::path& folder);

// The key that says whether embeddings which are saved whole stay tied to the model's head;
// otherwise PEFT trains the embeddings alone.
inline constexpr const char* kKeepsTied = "ensure_weight_tying";
bool keeps_tied(const std::filesystem::path& folder);

// Returns an adapter_config.json. `modules`: its targets, by their names in the model's files.
// `is_tied`: keeps_tied() of the folder. `base`: the base model's folder or name; empty: unknown.
Json peft_config(const Adapters& adapters, const std::vector<std::string>& modules,
                 const std::vector<std::string>& whole, bool is_tied, const std::string& base);

}  // namespace tracestep
