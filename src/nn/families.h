// Architectures of published models as records: read from a config.json (as transformers 4 and 5
// write it), or by name for well-known models.
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

// A config.json as it was read. Code that needs something from it asks here and does not read the
// file again.
struct ReadModel {
  ModelConfig config;                   // The model; its name comes from `where`.
  std::vector<std::string> notes = {};  // Notes for the user, such as "its text part alone".
  std::string family = {};              // The file's model_type.
  bool is_part = false;        // True: the model is only the text part of the published one.
  std::int64_t positions = 0;  // The file's max_position_embeddings; 0: it does not say.
  // Fields that are not known here and may change the model.
  std::vector<std::string> unknown = {};
  // How its weights are stored, such as "gptq, 4 bits"; empty: they are not quantized.
  std::string quantized = {};
  std::filesystem::path path = {};  // The path as it was given, of a folder or a file.
  // True: the path is a folder, which may also have weights and a tokenizer.
  bool is_folder = false;
  std::string text = {};  // the file's content
};

// Returns the values of "model_type" that are read.
std::vector<std::string> known_families();

// Reads a config.json. Throws Error{kInput} naming `where` for an unknown family, and for
// impossible values.
ReadModel model_of_json(const Json& json, const std::string& where);

// Reasons why the model can be planned by its sizes but neither trained nor its weights read, a
// sentence each.
std::vector<std::string> doubts_of(const ReadModel& model);
// Throws Error{kInput} naming `where` if doubts_of() has reasons; for callers that read weights or
// run the model.
void require_no_doubts(const ReadModel& model, const std::string& where);

// Reads the model of a config.json; `path` is that file or its folder. The model gets the name of
// the folder or file ("custom" if that is the name of another known model). Throws Error{kInput}.
ReadModel read_model(const std::filesystem::path& path);
// Returns what read_model() returns, but reads a file again only if it has changed.
std::shared_ptr<const ReadModel> known_model_at(const std::filesystem::path& path);

// Returns the model that a flag names: a preset or a published model by name, in any case, a path,
// or the name under which a published model is stored ("meta-llama/Llama-3.1-8B-Instruct", with or
// without its owner), for which a line says what was found. Throws Error{kUsage} naming `where` for
// a name that is none of these, and Error{kInput} for a file that is no model.
ModelConfig model_called(const About& where, const std::string& text);

// A model that is known by name ("llama-3.1-8b"), for planning without a file.
struct KnownModel {
  std::string_view family;  // Its model_type.
  ModelConfig config;
  std::int64_t positions = 0;  // Its max_position_embeddings.
};
const std::vector<KnownModel>& known_models();

// Returns the known model that is stored under this name, with or without an owner before a slash;
// nullptr: there is none.
const KnownModel* stored_as(std::string_view name);
// Returns the model_type that a name suggests, for a model of a type that is not supported:
// "mixtral" for "mixtral-8x7b", with or without an owner; empty: none.
std::string_view type_that_is_not_read(std::string_view name);

}  // namespace tracestep
