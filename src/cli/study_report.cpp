// What the study found, in tables and in words.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "base/units.h"
#include "cli/study.h"
#include "lab/measure/attribution.h"
#include "lab/measure/statistics.h"

namespace tracestep::cli {
namespace {

std::string percent(double share) {  // in percent
  return fmt::format("{:.0f} %", share);
}

// --- training --------------------------------------------------------------------------------

Table loss_table(const StudyTraining& t) {
  Table table{
      .name = "training",
      .title = "Loss during training",
      .columns = {
          {.name = "step", .kind = ColumnKind::kInt},
          {.name = "loss", .kind = ColumnKind::kReal, .digits = 3},
          {.name = "validation_loss",
           .title = "validation loss",
           .kind = ColumnKind::kReal,
           .digits = 3},
          {.name = "grad_norm", .title = "gradient norm", .kind = ColumnKind::kReal, .digits = 2},
          {.name = "lr", .title = "learning rate", .kind = ColumnKind::kReal},
          {.name = "tokens_per_s", .title = "tokens/s", .kind = ColumnKind::kReal, .digits = 0}}};
  const auto& steps = t.result.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const TrainStep& s = steps[i];
    if (i != 0 && i + 1 != steps.size() && !s.validation_loss) continue;
    table.add_row({s.step, s.loss, s.validation_loss ? Json(*s.validation_loss) : Json(),
                   s.grad_norm, s.lr, s.tokens_per_s});
  }
  return table;
}

// Generated text as a block of code, whatever it contains.
std::string as_code(std::string text) {
  std::ranges::replace(text, '`', '\'');
  return "```text\n" + text + "\n```";
}

StudySection training_section(const StudyTraining& t) {
  std::vector<double> rates;
  for (const TrainStep& s : t.result.steps) rates.push_back(s.tokens_per_s);
  const double first = t.result.steps.front().loss, last = t.result.steps.back().loss;
  std::string reading = fmt::format(
      "A model of {} parameters ({} layers, {} wide, one token per byte) was trained for {} steps "
      "of {} × {} tokens on {} files ({}) from {}: {} in all, {:.0f} tokens/s at the median. The "
      "loss is the mean cross-entropy in nats per byte: guessing evenly among {} bytes costs "
      "{:.2f}. It went from {:.2f} to {:.2f}, which is a perplexity of {:.1f} bytes. Validation "
      "loss is measured on the last part of the text, which is not trained on.",
      format_count(static_cast<double>(parameter_formula(t.model))), t.model.layers,
      t.model.d_model, t.result.steps.size(), t.shape.batch, t.shape.context, t.file_count,
      format_bytes(t.text_bytes), fmt::join(t.texts, ", "), format_duration_ms(t.seconds * 1e3),
      median_of(rates), t.model.vocab, std::log(static_cast<double>(t.model.vocab)), first, last,
      std::exp(last));
  reading += "\n\nWhat it writes when asked to continue \"The \":\n\n" + as_code(t.sample);
  return {"Training on bytes", reading, {loss_table(t)}};
}

// --- time of a step --------------------------------------------------------------------------

const StudyCell* find_cell(const Study& study, std::string_view size, Mode mode, Granularity ops) {
  for (const StudyCell& cell : study.cells) {
    const StepSpec& s = cell.spec.step;
    if (s.model.name == size && s.mode == mode && s.ops == ops && cell.result.status == "ok") {
      return &cell;
    }
  }
  return nullptr;
}

double median_ms(const StudyCell& cell) {
  return median_of(cell.result.samples_ms);
}

Table time_table(const Study& study) {
  Table table{
      .name = "time",
      .title = "Time of a step",
      .columns = {
          {.name = "size"},
          {.name = "mode"},
          {.name = "ops"},
          {.name = "status"},
          {.name = "median_ms",
           .title = "median",
           .unit = "ms",
           .kind = ColumnKind::kReal,
           .digits = 1},
          {.name = "min_ms", .title = "min", .unit = "ms", .kind = ColumnKind::kReal, .digits = 1},
          {.name = "span_ms",
           .title = "span",
           .unit = "ms",
           .kind = ColumnKind::kReal,
           .digits = 1},
          {.name = "busy_ms",
           .title = "busy",
           .unit = "ms",
           .kind = ColumnKind::kReal,
           .digits = 1},
          {.name = "tokens_per_s", .title = "tokens/s", .kind = ColumnKind::kReal, .digits = 0},
          {.name = "gflops", .title = "GFLOP/s", .kind = ColumnKind::kReal, .digits = 0},
          {.name = "peak_bytes", .title = "peak", .kind = ColumnKind::kBytes},
          {.name = "launches", .kind = ColumnKind::kInt}}};
  for (const StudyCell& cell : study.cells) {
    const CellResult& r = cell.result;
    const StepSpec& s = cell.spec.step;
    std::vector<Json> row{s.model.name, name_of(s.mode), name_of(s.ops), r.status};
    if (r.status == "ok") {
      const double ms = median_ms(cell);
      const auto tokens = static_cast<double>(s.shape.batch * s.shape.context);
      for (double v : {ms, min_of(r.samples_ms), r.device_span_ms, r.device_busy_ms,
                       tokens / ms * 1e3, static_cast<double>(r.flops) / ms * 1e-6}) {
        row.emplace_back(v);
      }
      row.emplace_back(r.peak_bytes);
      row.emplace_back(r.launches);
    }
    row.resize(table.columns.size());
    table.add_row(std::move(row));
  }
  return table;
}

// "Training small takes 6.12 s a step with fused composites, 8.40 s with primitive ops: 1.37×."
std::string granularity_sentence(const Study& study, const std::string& size) {
  const StudyCell* fused = find_cell(study, size, Mode::kStep, Granularity::kFused);
  const StudyCell* primitive = find_cell(study, size, Mode::kStep, Granularity::kPrimitive);
  if (fused == nullptr || primitive == nullptr) return "";
  const double a = median_ms(*fused), b = median_ms(*primitive);
  return fmt::format(
      " A training step of {} takes {} with fused composites and {} with primitive ops ({:.2f}×), "
      "with {} and {} kernels and peaks of {} and {}.",
      size, format_duration_ms(a), format_duration_ms(b), b / a, fused->result.launches,
      primitive->result.launches, format_bytes(fused->result.peak_bytes),
      format_bytes(primitive->result.peak_bytes));
}

std::string mode_sentence(const Study& study, const std::string& size) {
  std::array<const StudyCell*, 4> cells{};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    cells[i] = find_cell(study, size, kAllModes[i], Granularity::kFused);
    if (cells[i] == nullptr) return "";
  }
  const double forward = median_ms(*cells[1]), both = median_ms(*cells[2]),
               step = median_ms(*cells[3]);
  return fmt::format(
      " For {}, backward costs {:.1f} times the forward pass, and the optimizer {} of the step.",
      size, (both - forward) / forward, percent(100.0 * std::max(0.0, step - both) / step));
}

StudySection time_section(const Study& study) {
  std::string reading =
      "Every row is one way to run the model: inference keeps nothing for backward, forward keeps "
      "what backward would need, forward-backward computes gradients, step also updates the "
      "weights (AdamW). primitive runs softmax, norms and the loss in parts, as plain framework "
      "code writes them; fused runs each as one kernel. median and min are wall times of whole "
      "steps; span goes from the first kernel's start to the last one's end; busy adds up the "
      "kernels alone, measured in a separate step; GFLOP/s counts matrix products only. peak is "
      "the most memory alive at once, as requested.";
  for (const char* size : {"tiny", "small"}) {
    reading += mode_sentence(study, size) + granularity_sentence(study, size);
  }
  return {"Time of a step", reading, {time_table(study)}};
}

// --- where it goes ---------------------------------------------------------------------------

int column_index(const Table& table, std::string_view name) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

double number_at(const std::vector<Json>& row, int column) {
  if (column < 0) return 0.0;
  const Json& cell = row[static_cast<std::size_t>(column)];
  return cell.is_number() ? cell.as_double() : 0.0;
}

// The rows with the largest shares, in words: "ffn.w1 (21 %), ffn.w3 (20 %) and head (14 %)".
std::string largest_rows(const Table& table, std::size_t count) {
  const int share = column_index(table, "share_percent");
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& row : table.rows) {
    const std::string name = row[0].as_string();
    if (name != "total" && name != "gaps") rows.emplace_back(number_at(row, share), name);
  }
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.first > b.first; });
  rows.resize(std::min(rows.size(), count));
  std::vector<std::string> words;
  for (const auto& [value, name] : rows) words.push_back(name + " (" + percent(value) + ")");
  return fmt::format("{}", fmt::join(words, ", "));
}

double share_of_row(const Table& table, std::string_view name) {
  const int share = column_index(table, "share_percent");
  for (const auto& row : table.rows) {
    if (row[0].as_string() == name) return number_at(row, share);
  }
  return 0.0;
}

Table renamed(Table table, const StudyCell& cell, const std::string& what) {
  const StepSpec& s = cell.spec.step;
  table.name += fmt::format("_{}_{}", s.model.name, name_of(s.ops));
  table.title =
      fmt::format("{}: {}, one {}, {} ops", what, s.model.name, name_of(s.mode), name_of(s.ops));
  return table;
}

// The cells that are taken apart: a whole step of each size and granularity.
std::vector<const StudyCell*> dissected(const Study& study) {
  std::vector<const StudyCell*> out;
  for (const char* size : {"small", "tiny"}) {
    for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
      if (const StudyCell* cell = find_cell(study, size, Mode::kStep, ops)) out.push_back(cell);
    }
  }
  return out;
}

StudySection component_section(const Study& study) {
  StudySection out{"Time per component and phase",
                   "Each kernel knows which part of the model asked for it and whether it belongs "
                   "to forward, backward or the optimizer; layers are added up. The numbers are "
                   "milliseconds of one recorded step. The row gaps is what lies between kernels: "
                   "finding buffers and calling the next one. It is measured, not scaled away, so "
                   "that the total is the span of that step.",
                   {}};
  for (const StudyCell* cell : dissected(study)) {
    const Table table = time_by_component(cell->result);
    out.reading += fmt::format(" In {} ({}), most time goes to {}; gaps are {:.1f} %.",
                               cell->spec.step.model.name, name_of(cell->spec.step.ops),
                               largest_rows(table, 3), share_of_row(table, "gaps"));
    out.tables.push_back(renamed(table, *cell, "Time per component and phase"));
  }
  return out;
}

StudySection class_section(const Study& study) {
  StudySection out{"Time per kind of kernel",
                   "The same time by what kind of kernel it is. Matrix products (gemm) do nearly "
                   "all the arithmetic; everything else mostly moves bytes, so its speed is read "
                   "as GB/s.",
                   {}};
  for (const StudyCell* cell : dissected(study)) {
    const Table table = time_by_class(cell->result);
    out.reading += fmt::format(" {} ({}): gemm takes {} of the step.", cell->spec.step.model.name,
                               name_of(cell->spec.step.ops), percent(share_of_row(table, "gemm")));
    out.tables.push_back(renamed(table, *cell, "Time per kind of kernel"));
  }
  return out;
}

bool all_peaks_equal(const Study& study) {
  return std::ranges::all_of(study.cells, [](const StudyCell& c) {
    return c.result.status != "ok" || c.result.peak_bytes == c.result.predicted_peak_bytes;
  });
}

StudySection bytes_section(const Study& study) {
  const bool all_equal = all_peaks_equal(study);
  StudySection out{
      "Bytes per category",
      fmt::format("What is alive at the fullest moment of a step. Predicted comes from the program "
                  "alone, before anything runs; measured from the allocator's own record. {} "
                  "Parameters and the optimizer's two states are there all the time; activations "
                  "are what forward keeps for backward; temporaries live for a few kernels.",
                  all_equal ? "In all cells of this study the two peaks agree to the byte."
                            : "They do NOT agree in every cell of this study: that is a defect."),
      {}};
  for (const StudyCell* cell : dissected(study)) {
    out.tables.push_back(renamed(bytes_by_category(cell->result), *cell, "Bytes per category"));
  }
  return out;
}

// The findings in a few lines, for a reader who stops here.
StudySection summary_section(const Study& study) {
  const auto& steps = study.training.result.steps;
  std::string out =
      fmt::format("- Training for {} steps brought the loss from {:.2f} to {:.2f} nats per byte.",
                  steps.size(), steps.front().loss, steps.back().loss);
  for (const char* size : {"tiny", "small"}) {
    const std::string sentence = granularity_sentence(study, size);
    if (!sentence.empty()) out += "\n-" + sentence;
  }
  for (const StudyCell* cell : dissected(study)) {
    const Table by_class = time_by_class(cell->result), parts = time_by_component(cell->result);
    out += fmt::format(
        "\n- {}, {} ops: {} of a step is matrix products, {:.1f} % gaps; the "
        "largest parts are {}.",
        cell->spec.step.model.name, name_of(cell->spec.step.ops),
        percent(share_of_row(by_class, "gemm")), share_of_row(by_class, "gaps"),
        largest_rows(parts, 3));
  }
  out += all_peaks_equal(study)
             ? "\n- Predicted and measured peak memory agree to the byte in every cell."
             : "\n- Predicted and measured peak memory do NOT agree in every cell: a defect.";
  return {"In short", out, {}};
}

}  // namespace

std::vector<StudySection> study_sections(const Study& study) {
  return {summary_section(study), training_section(study.training),
          time_section(study),    component_section(study),
          class_section(study),   bytes_section(study)};
}

std::string study_page(const std::vector<StudySection>& sections, const Json& environment) {
  std::string out =
      "# A training step, measured\n\n"
      "Written by `tracestep study`. The same numbers, with every sample, are in `study.json`.\n";
  for (const StudySection& section : sections) {
    out += fmt::format("\n## {}\n\n{}\n", section.title, section.reading);
    for (const Table& table : section.tables) {
      out += "\n" + to_string({"", Json::object(), {table}}, Format::kMarkdown);
    }
  }
  out += "\n## Where this was measured\n\n";
  out += to_string({"", Json::object(), {key_value_table("environment", "", environment)}},
                   Format::kMarkdown);
  return out;
}

}  // namespace tracestep::cli
