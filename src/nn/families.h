// The architectures that people publish models in, as records: from the fields of a published
// config.json (as transformers 4 and 5 write it), and by name for models that are well known.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "nn/config.h"

namespace tracestep {

// A config.json as it was read: who needs something of it asks here, and not the file.
struct ReadModel {
  ModelConfig config;                     // its name is `where`'s
  std::vector<std::string> notes = {};    // what a reader should know: "its text part alone"
  std::string family = {};                // its model_type
  bool is_part = false;                   // its text part
  std::int64_t positions = 0;             // max_position_embeddings; 0: it does not say
  std::vector<std::string> unknown = {};  // fields that nobody knows, which may change the model
  std::string quantized = {};       // "gptq, 4 bits": how its weights are stored; empty: whole
  std::filesystem::path path = {};  // as it was given: a folder, or a file
  bool is_folder = false;           // which may hold weights and a tokenizer
  std::string text = {};            // the file's content
};

// The values of "model_type" that are read.
std::vector<std::string> known_families();

// `json`: a config.json. Error{kInput} naming `where` for a family that nobody knows, and for
// values that no field takes.
ReadModel model_of_json(const Json& json, const std::string& where);

// Reasons why the model's weights cannot be read, nor it be trained, though a step of its sizes can
// be planned: one sentence each.
std::vector<std::string> doubts_of(const ReadModel& model);
// Error{kInput} naming `where` where there are any: for whoever reads weights, or runs the model.
void require_no_doubts(const ReadModel& model, const std::string& where);

// The model in a folder with a config.json, or in such a file. Its name is that of the folder, or
// of a file that is called otherwise; "custom" where that is the name of another known model.
// Error{kInput}.
ReadModel read_model(const std::filesystem::path& path);
// Returns it read once for each state of the file: whoever asks later gets what was read first.
std::shared_ptr<const ReadModel> known_model_at(const std::filesystem::path& path);

// The model that a flag names: a preset or a published model by name, in any case, a path, or a
// published model as it is stored ("meta-llama/Llama-3.1-8B-Instruct", with or without its owner);
// a line then says which. Error{kUsage} naming `where` for a name that is none of these,
// Error{kInput} for a file that is no model.
ModelConfig model_called(const About& where, const std::string& text);

// Models by name ("llama-3.1-8b"), for planning without any file.
struct KnownModel {
  std::string_view family;  // its model_type
  ModelConfig config;
  std::int64_t positions = 0;  // max_position_embeddings
};
const std::vector<KnownModel>& known_models();

// The one that is stored under this name, with an owner before a slash or without; nullptr: none.
const KnownModel* stored_as(std::string_view name);
// The type of a model that is no known one and whose name, an owner before it or not, is that of
// another type: "mixtral" of "mixtral-8x7b"; empty: nothing is known of it.
std::string_view type_that_is_not_read(std::string_view name);

}  // namespace tracestep
