// tracestep models: lists the models that --model knows by name.
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/families.h"

namespace tracestep::cli {
namespace {

Table model_table() {
  using M = KnownModel;
  const Fields<M> fields = {
      {col::model, [](const M& m) { return m.config.name; }},
      {text_column("family", {}, "model_type of its config.json"),
       [](const M& m) { return m.family; }},
      {col::parameters, [](const M& m) { return parameter_formula(m.config); }},
      {col::layers, [](const M& m) { return m.config.layers; }},
      {col::d_model, [](const M& m) { return m.config.d_model; }},
      {col::d_ff, [](const M& m) { return m.config.d_ff; }},
      {col::heads, [](const M& m) { return m.config.heads; }},
      {int_column("kv_heads", "key heads", "heads of keys and values"),
       [](const M& m) { return m.config.key_heads(); }},
      {int_column("head_width", "D"), [](const M& m) { return m.config.head_width(); }},
      {col::vocab, [](const M& m) { return m.config.vocab; }},
      {bool_column("tied_head", "tied", "the head's weight is the embedding's"),
       [](const M& m) { return m.config.is_tied; }},
      {int_column("window", {}, "tokens that layers with a window see; 0: all layers see all"),
       [](const M& m) { return m.config.window; }}};
  std::vector<M> all;
  for (const ModelConfig& config : model_presets()) all.push_back({"tracestep", config});
  all.insert(all.end(), known_models().begin(), known_models().end());
  Table out = table_of("models", "Models by name; --model takes them, in any case", fields, all);
  out.notes = {
      "L: layers, C: width of the model, F: of the feed-forward, H: heads, D: width of a head, V: "
      "vocabulary"};
  return out;
}

}  // namespace

Command models_command() {
  const auto output = std::make_shared<OutputOptions>();
  Command command{.name = "models"};
  add_output_options(command.options, *output);
  command.run = [output](std::span<const std::string> arguments) {
    probe_output(*output);
    write_tables(*output, "tracestep.models/1", environment_of(arguments, {}), {model_table()});
    return 0;
  };
  return command;
}

}  // namespace tracestep::cli
