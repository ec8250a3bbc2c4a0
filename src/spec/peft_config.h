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

// `modules`: the targets by the names of the model's files. `base`: the folder or the name of the
// model; empty: none is known.
Json peft_config(const Adapters& adapters, const std::vector<std::string>& modules,
                 const std::vector<std::string>& whole, const std::string& base);

}  // namespace tracestep
