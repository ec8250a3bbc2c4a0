// The architectures that people publish models in, as records: from the fields of a published
// config.json (as transformers 4 and 5 write it), and by name for models that are well known.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "nn/config.h"

namespace tracestep {

struct ReadModel {
  ModelConfig config;                   // its name is `where`'s
  std::vector<std::string> notes = {};  // what a reader should know: "its text part alone"
  std::string family = {};              // its model_type
  bool is_part = false;                 // its text part
};

// The values of "model_type" that are read.
std::vector<std::string> known_families();

// `json`: a config.json. Error{kInput} naming `where` for a family that nobody knows, for a field
// that nobody knows unless it only says how to generate or run, and for values that no field takes.
ReadModel model_of_json(const Json& json, const std::string& where);

// The model in a folder with a config.json, or in such a file. Its name is that of the folder, or
// of a file that is called otherwise; "custom" where that is the name of another known model.
// Error{kInput}.
ReadModel read_model(const std::filesystem::path& path);

// What a flag names: a preset or a published model by name, in any case, or a path. Error{kUsage}
// naming `where` for a name that is neither, Error{kInput} for a file that is no model.
ModelConfig model_called(const std::string& where, const std::string& text);

// Models by name ("llama-3.1-8b"), for planning without any file.
struct KnownModel {
  std::string_view family;  // its model_type
  ModelConfig config;
};
const std::vector<KnownModel>& known_models();

}  // namespace tracestep
