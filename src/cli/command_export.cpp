// tracestep export: weights as a folder that transformers loads.
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/token_input.h"
#include "weights/checkpoint_names.h"
#include "weights/family_export.h"
#include "weights/family_files.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"

namespace tracestep::cli {
namespace {

struct ExportCommand {
  std::string weights, folder, dtype;
  std::filesystem::path model;
  bool merges = false;
};

// The folder of the published model whose files are taken along; empty: the weights have none.
std::filesystem::path given_folder(const ExportCommand& o, const Weights& weights) {
  if (!o.model.empty()) return o.model;
  const std::string origin = weights.tensors.origin();
  if (origin.empty() || is_model_folder(origin)) return origin;
  throw Error(ErrorCode::kInput, "--model",
              fmt::format("{}, where the weights began from, is no longer there", origin),
              "give the folder of that model");
}

bool is_of(const std::filesystem::path& origin, const Tokenizer& tokenizer) {
  try {
    return load_tokenizer(origin)->hash() == tokenizer.hash();
  } catch (const Error&) {  // there is none, or one that cannot be read
    return false;
  }
}

// Takes the tokenizer along: the origin's, or one written as tokenizer.json. Warns if neither.
void take_tokenizer(FamilyExport& what, const Weights& weights) {
  const auto own = tokenizer_for_numbers(&weights);
  if (own == nullptr || is_of(what.origin, *own)) return;
  what.has_tokenizer_of_origin = false;
  what.tokenizer_json = own->tokenizer_json();
  what.has_own_tokenizer = !is_tokenizer_json(own->content()) && !what.tokenizer_json.empty();
  if (what.tokenizer_json.empty()) {
    log_warn("[export] the tokenizer stays behind: its rules have no tokenizer.json that is known");
  }
}

// The path that the argument WEIGHTS stands for, and how a line names it if it is another path.
struct Chosen {
  std::filesystem::path path;
  std::string said = {};
};

// Takes the best checkpoint of a folder, if it has one, else the newest.
Chosen chosen_of(const std::filesystem::path& weights) {
  std::error_code ignored;
  const std::filesystem::path best = weights / kBestCheckpoint,
                              newest = weights / kLatestCheckpoint;
  if (is_model_folder(weights)) return {weights};
  if (std::filesystem::exists(best, ignored)) return {best, ", of " + best.string()};
  if (!std::filesystem::exists(newest, ignored)) return {weights};
  return {weights, fmt::format(", of {}, as there is no best checkpoint", newest.string())};
}

int run_export(const ExportCommand& o) {
  const Chosen chosen = chosen_of(o.weights);
  const Weights weights = *weights_at(chosen.path, "WEIGHTS");
  const SavedTensors& tensors = weights.tensors;
  if (!tensors.metadata().contains("heads")) {
    throw Error(ErrorCode::kInput, o.weights, "it does not say how many heads its model has",
                "give weights or a checkpoint that tracestep has written");
  }
  TensorsToSave from{.types = {},
                     .get = [&](const std::string& name) { return tensors.read(name); }};
  for (const std::string& name : tensors.names()) from.types[name] = tensors.type(name);
  const Adapters adapters = adapters_of(tensors);
  if (o.merges && !adapters.is_on()) {
    fail_usage("--merge", "the weights of {} have no adapters", o.weights);
  }
  if (adapters.is_on() && !o.merges) {
    if (!o.dtype.empty()) fail_usage("--dtype", "adapters are written as they are");
    write_peft_folder(o.folder, config_of(tensors, {}), adapters, given_folder(o, weights), from);
    log_info("export: the adapters are in {}{} (--merge writes the whole model)", o.folder,
             chosen.said);
    return 0;
  }
  if (o.merges) from = merged(from, adapters);
  FamilyExport what{.model = config_of(tensors, {}), .origin = given_folder(o, weights)};
  take_tokenizer(what, weights);
  if (!o.dtype.empty()) what.dtype = named<DType>(o.dtype);
  write_family_folder(o.folder, what, from);
  log_info("export: {} is written{}", o.folder, chosen.said);
  return 0;
}

}  // namespace

Command export_command() {
  const auto options = std::make_shared<ExportCommand>();
  Command command{.name = "export"};
  OptionSet& set = command.options;
  set.positional("WEIGHTS", options->weights,
                 "a file of weights, a folder of checkpoints, of which the best one is taken, else "
                 "the newest, one of its names, such as run/latest, or a published model");
  set.positional("DIR", options->folder, "the folder to make; it must not exist, or be empty");
  set.path("--model", "DIR", options->model,
           "the published model that it is; when left out the one that training began from");
  set.choice("--dtype", options->dtype, {"f32", "bf16", "f16"},
             "of the weights; when left out that of the published model, else as they are");
  set.toggle("--merge", options->merges,
             "with adapters: the model with them added to its weights; without it the adapters "
             "alone, as PEFT reads them");
  command.run = [options](std::span<const std::string>) { return run_export(*options); };
  return command;
}

}  // namespace tracestep::cli
