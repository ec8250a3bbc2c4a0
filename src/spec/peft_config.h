// adapter_config.json: the description of adapters as PEFT writes it, read and written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/adapters.h"

namespace tracestep {

inline constexpr const char* kPeftConfig = "adapter_config.json";

// The adapters of a folder, `from` it. Error{kInput} naming the file for what is no LoRA, and for
// variants of it that are computed otherwise (DoRA, ranks by layer, trained biases, …).
Adapters read_peft_config(const std::filesystem::path& folder);

// Whether embeddings that are saved whole stay the head of a model that has one matrix for both;
// else PEFT trains the embeddings alone.
inline constexpr const char* kKeepsTied = "ensure_weight_tying";
bool keeps_tied(const std::filesystem::path& folder);

// `modules`: the targets by the names of the model's files. `is_tied`: keeps_tied() of the folder.
// `base`: the folder or the name of the model; empty: none is known.
Json peft_config(const Adapters& adapters, const std::vector<std::string>& modules,
                 const std::vector<std::string>& whole, bool is_tied, const std::string& base);

}  // namespace tracestep
