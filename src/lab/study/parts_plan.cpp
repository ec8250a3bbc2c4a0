// Parts of the study that need no time on the device: number formats, and what programs say.
#include <algorithm>
#include <array>
#include <exception>

#include "base/shares.h"
#include "lab/attention/tables.h"
#include "lab/explain/explain.h"
#include "lab/memory/accounting.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "lab/study/study.h"
#include "spec/axes.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
// The memory that a program gets of an A100 with 40 GB: the card of the published study in which
// two graphs were alive at once.
constexpr double kGraphLimitGiB = 39.4;

// The TFLOPs of forward at batch 4, context 128.
double forward_tflops(const ModelConfig& m) {
  const auto b = static_cast<double>(kBatch), t = 128.0, c = static_cast<double>(m.d_model),
             f = static_cast<double>(m.d_ff), l = static_cast<double>(m.layers),
             v = static_cast<double>(m.vocab);
  const double flops =
      2 * b * t * (4 * c * c + 3 * c * f) * l + 2 * b * t * c * v + 4 * b * t * t * c * l;
  return flops * 1e-12;
}

Table size_table(const StudyContext& context) {
  using M = const ModelConfig&;
  const std::int64_t room = context.machine.memory_bytes;
  const Fields<ModelConfig> fields = {
      {text_column("size"), &ModelConfig::name},
      {int_column("layers"), &ModelConfig::layers},
      {int_column("d_model", "C"), &ModelConfig::d_model},
      {int_column("d_ff", "F"), &ModelConfig::d_ff},
      {int_column("heads", "H"), &ModelConfig::heads},
      {int_column("vocab", "V"), &ModelConfig::vocab},
      {col::parameters("2VC + L(4C² + 3CF + 2C) + C"), parameter_formula},
      {bytes_column("weight_bytes", "weights", "4 bytes each"),
       [](M m) { return 4 * parameter_formula(m); }},
      {bytes_column("before_bytes", "before a step", "weights and AdamW's moments: 12 bytes each"),
       [](M m) { return 12 * parameter_formula(m); }},
      {bytes_column("static_bytes", "with gradients",
                    "16 bytes each: gradients are there from backward until the update"),
       [](M m) { return 16 * parameter_formula(m); }},
      {int_column("weight_products", "weight products", "in one forward pass: 7L + 1"),
       [](M m) { return 7 * m.layers + 1; }},
      {int_column("attention_products", "attention products", "2L"),
       [](M m) { return 2 * m.layers; }},
      {real_column("forward_tflops", "forward of 4 × 128", "TFLOP", 3,
                   "matrix products, batch 4, context 128"),
       forward_tflops},
      {data_only(bytes_column(
           "device_bytes", {},
           "what a run may use: its limit, else all of a device, nine tenths of a host's memory")),
       [room](M) { return when(room > 0, room); }}};
  std::vector<ModelConfig> models = model_presets();
  const ModelConfig& planned = context.sizes.planned;
  // The columns' formulas are those of the reference Transformer.
  const bool is_new = std::ranges::find(models, planned.name, &ModelConfig::name) == models.end();
  if (is_new && variations_of(planned).empty()) {
    models.push_back(planned);
  }
  return table_of("sizes", "Model sizes", fields, models);
}

std::vector<MemoryCell> planned_cells(StudyContext& context) {
  const RunSpec usual = context.here(
      {.model = context.sizes.planned, .shape = {.batch = kBatch}, .ops = Granularity::kPrimitive});
  const auto contexts = axis<RunSpec>(
      context.sizes.planned_contexts, [](RunSpec & run) -> auto& { return run.shape.context; });
  const auto modes =
      axis<RunSpec>(std::array{Mode::kInference, Mode::kForward, Mode::kStep}, &RunSpec::mode);
  const auto precisions = axis<RunSpec>(
      std::array{Precision(), Precision{.autocast = DType::kBF16}}, &RunSpec::precision);
  const std::vector<RunSpec> runs = product<RunSpec>({usual}, {contexts, modes, precisions});
  std::vector<MemoryCell> cells(runs.size());
  predict_each(context, runs, [&](std::size_t i, MemoryRun run) {
    cells[i].run = std::move(run);
    cells[i].limit_bytes = context.machine.memory_bytes;
  });
  return cells;
}

// A table of the largest allocation of each component, without leaves, which exist before the step.
Table planned_components(std::span<const MemoryCell> cells) {
  Table table = component_table(
      cells, {.without = {Category::kParameter, Category::kInput, Category::kOptimizerState}});
  table.name = "planned_components";
  table.title += ", predicted";
  return table;
}

Table grid_table(const StudyContext& context, std::span<const MemoryCell> cells) {
  Table table = peak_table(cells);  // without rows when there was no time at all
  table.name = "memory_grid";
  table.title = fmt::format("{}, predicted: peaks per context, mode and precision",
                            context.sizes.planned.name);
  // The three structured columns repeat what other tables say at length.
  table.columns.resize(table.columns.size() - 3);
  for (auto& row : table.rows) row.resize(table.columns.size());
  return table;
}

Table graph_table() {
  Table table{.name = "live_graphs",
              .title = "Forward alone with one and with two graphs alive, by closed forms"};
  table.columns = {
      text_column("size"),
      int_column("context"),
      bytes_column("one_graph_bytes", "one graph"),
      bytes_column("two_graphs_bytes", "two graphs",
                   "the last result is kept while the next one is computed"),
      bytes_column("with_backward_bytes", "forward and backward"),
      bytes_column("limit_bytes", "limit", "of an A100 with 40 GB: what a program gets")};
  for (const char* size : {"small", "medium", "large", "xl", "2.7B"}) {
    for (std::int64_t context : {128, 256, 512, 1024}) {
      const RunSpec forward{.model = preset(size),
                            .shape = {.batch = kBatch, .context = context},
                            .mode = Mode::kForward};
      RunSpec both = forward;
      both.mode = Mode::kForwardBackward;
      table.add_cells({{"size", size},
                       {"context", context},
                       {"one_graph_bytes", accounted_peak(forward, {.live_graphs = 1}).bytes},
                       {"two_graphs_bytes", accounted_peak(forward, {.live_graphs = 2}).bytes},
                       {"with_backward_bytes", accounted_peak(both, {.live_graphs = 1}).bytes},
                       {"limit_bytes", static_cast<std::int64_t>(kGraphLimitGiB * kGiB)}});
    }
  }
  return table;
}

// Returns predicted peaks of attention by context, and the buffers of the first that does not fit.
std::vector<Table> attention_predictions(StudyContext& context) {
  Table table{.name = "attention_predicted", .title = "Attention at longer contexts, predicted"};
  table.columns = {int_column("width"),
                   int_column("context"),
                   bytes_column("before_backward_bytes", "before backward"),
                   bytes_column("peak_bytes", "peak"),
                   bytes_column("device_bytes", "device"),
                   {.name = "fits", .kind = ColumnKind::kBool},
                   data_only(structured_column("cell", "all parameters of the row"))};
  const auto device = context.machine.make_device(context.here({}));
  AttentionSpec spec = context.sizes.attention;
  spec.run = context.here(spec.run);
  spec.width = context.sizes.widths.back();  // whose times the questions are about
  const std::int64_t room = context.machine.memory_bytes;
  std::optional<AttentionResult> beyond;
  for (std::int64_t tokens = 2048; tokens <= 131072; tokens *= 2) {
    spec.run.shape.context = tokens;
    const PartsBytes bytes = predict_attention(spec, *device);
    table.add_cells({{"width", spec.width},
                     {"context", tokens},
                     {"before_backward_bytes", bytes.before_backward},
                     {"peak_bytes", bytes.peak},
                     {"device_bytes", when(room > 0, room)},
                     {"fits", when(room > 0, bytes.peak <= room)},
                     {"cell", key_of(spec)}});
    const bool is_first_beyond = room > 0 && bytes.peak > room && !beyond;
    if (!is_first_beyond) continue;
    beyond.emplace().spec = spec;
    beyond->status = Status::kOutOfMemory;
  }
  std::vector<Table> out = {std::move(table)};
  if (beyond) out.push_back(attention_account_table(*beyond, context.machine.make_device));
  return out;
}

// Returns, by formulas, what ranks send, and up to how many ranks computing hides it.
Table communication_table(const StudyContext& context) {
  const std::vector<Table> all =
      explain(topic_named("parallel-limits"),
              {.model = context.sizes.planned,
               .shape = {.batch = kBatch, .context = context.sizes.planned_contexts.back()}});
  Table out = all.front();
  out.name = "communication";
  out.title = "What ranks send, and how many hide it, by formulas";
  return out;
}

}  // namespace

void predict_each(const StudyContext& context, std::span<const RunSpec> runs,
                  const std::function<void(std::size_t, MemoryRun)>& take) {
  std::vector<std::exception_ptr> errors(runs.size());
  in_shares(std::ssize(runs), 2, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      try {
        take(i, predict_memory(runs[i], context.machine.traits));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void number_part(StudyContext& context) {
  context.announce("sums, formats, autocast and normalisation");
  const auto device = context.machine.make_device(context.here({}));
  context.sections.push_back(
      section("numbers", {accumulation_table(device.get()), format_table(), autocast_table(),
                          precision_class_table(), norm_table(context.machine.seed)}));
}

void plan_part(StudyContext& context) {
  context.announce("predicting what larger models take");
  const std::vector<MemoryCell> cells = planned_cells(context);
  StudySection out = section("plans", {size_table(context), grid_table(context, cells),
                                       graph_table(), planned_components(cells)});
  std::ranges::move(attention_predictions(context), std::back_inserter(out.tables));
  for (const MemoryCell& cell : cells) {
    const RunSpec& step = cell.run.spec.step;
    const bool is_drawn = step.shape.context == context.sizes.planned_contexts.back() &&
                          step.mode != Mode::kInference && step.precision == Precision();
    if (!is_drawn) continue;
    out.tables.push_back(stack_table(cell));
    out.tables.back().title += ": " + label_of(cell) + ", predicted";
    out.tables.back().name += "@" + label_of(cell);
  }
  out.tables.push_back(communication_table(context));
  context.sections.push_back(std::move(out));
  plan_ranks(context);
}

}  // namespace tracestep
