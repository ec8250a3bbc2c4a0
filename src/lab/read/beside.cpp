#include "lab/read/beside.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

struct Side {
  double ms = 0, calls = 0;

  Side& operator+=(const Side& other) {
    ms += other.ms;
    calls += other.calls;
    return *this;
  }
};

struct BesideRow {
  std::string level, name;
  Side theirs = {}, ours = {};
};

WorkClass work_of(const PredictedClass& of) {
  if (of.phase == Phase::kOptimizer) return WorkClass::kOptimizer;
  switch (of.kernel_class) {
    case KernelClass::kGemm: return WorkClass::kProducts;
    case KernelClass::kAttention: return WorkClass::kAttention;
    case KernelClass::kOptimizer: return WorkClass::kOptimizer;
    case KernelClass::kCollective: return WorkClass::kCollectives;
    default: return WorkClass::kMemoryBound;
  }
}

std::optional<TracePass> pass_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return TracePass::kForward;
    case Phase::kBackward:
    case Phase::kRecompute: return TracePass::kBackward;
    case Phase::kOptimizer: return TracePass::kOptimizer;
    case Phase::kCommunication: return std::nullopt;
  }
  return std::nullopt;
}

// A part of the model, and the words in small letters by which the names of modules, ours or
// others', are recognised as this part.
struct ModuleWords {
  const char* name;
  std::vector<std::string_view> words;
};
const std::vector<ModuleWords>& module_words() {
  static const std::vector<ModuleWords> words{
      {"attention", {"attention", "attn"}},
      {"feed-forward", {"mlp", "feedforward", "feed_forward", "ffn"}},
      {"embedding", {"embed"}},
      {"norms", {"norm", "ln1", "ln2", "ln_"}},
      {"head", {"head"}}};
  return words;
}

// Returns the ModuleWords::name of the outermost module in a path that has one; empty: none has.
std::string part_of(std::string_view path, char between) {
  std::string lower(path);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::size_t begin = 0; begin <= lower.size();) {
    const std::size_t end = std::min(lower.find(between, begin), lower.size());
    const std::string_view segment = std::string_view(lower).substr(begin, end - begin);
    // The outermost module is the whole model, whatever its name says.
    for (const ModuleWords& part : module_words()) {
      const bool is_inner = begin > 0 || between == '.';
      const auto has = [&](std::string_view word) { return segment.find(word) != segment.npos; };
      if (is_inner && std::ranges::any_of(part.words, has)) return part.name;
    }
    begin = end + 1;
  }
  return "";
}

class BesideRows {
 public:
  explicit BesideRows(const ReadTrace& theirs) : t_(theirs) {}

  void add_theirs(PartLevel level, const char* word) {
    for (const Part* part : t_.times.parts.of(level)) {
      std::string name = t_.name_of(*part);
      if (level == PartLevel::kModule) name = part_of(name, '/');
      const auto steps = static_cast<double>(t_.times.count());
      const auto calls = static_cast<double>(part->times.count()) / steps;
      if (!name.empty()) at(word, name).theirs += {1e-6 * part->times.total_ns() / steps, calls};
    }
  }
  BesideRow& at(const std::string& level, std::string_view name) {
    const auto found = std::ranges::find_if(
        rows_, [&](const BesideRow& row) { return row.level == level && row.name == name; });
    if (found != rows_.end()) return *found;
    return rows_.emplace_back(level, std::string(name));
  }
  // Returns the rows that have a time, without modules for which only one side has one.
  std::vector<BesideRow> take() {
    std::erase_if(rows_, [](const BesideRow& r) {
      const bool is_lacking = r.theirs.ms == 0 || r.ours.ms == 0;
      return r.theirs.ms + r.ours.ms == 0 || (r.level == "module" && is_lacking);
    });
    return std::move(rows_);
  }

 private:
  const ReadTrace& t_;
  std::vector<BesideRow> rows_;
};

std::vector<BesideRow> rows_of(const ReadTrace& t, const StepTime& ours) {
  BesideRows rows(t);
  const auto launches = static_cast<double>(ours.launches);
  const auto pieces = static_cast<double>(t.times.pieces) / static_cast<double>(t.times.count());
  BesideRow& step = rows.at("step", "");
  step.theirs = {t.times.mean_step_ms(), pieces};
  step.ours = {ours.ms, launches};
  rows.add_theirs(PartLevel::kKind, "kind");
  for (const PredictedClass& of : ours.classes) {
    rows.at("kind", name_of(work_of(of))).ours += {of.ms, static_cast<double>(of.launches)};
  }
  rows.at("kind", "gaps").theirs.ms = mean_of(t.times.ms_of(PartLevel::kGap));
  rows.at("kind", "gaps").ours.ms = std::max(0.0, ours.ms - (ours.kernels_ms - ours.beside_ms));
  rows.add_theirs(PartLevel::kPass, "pass");
  for (const PredictedClass& of : ours.classes) {
    const std::optional<TracePass> pass = pass_of(of.phase);
    if (pass) rows.at("pass", name_of(*pass)).ours += {of.ms, static_cast<double>(of.launches)};
  }
  rows.add_theirs(PartLevel::kModule, "module");
  for (const PredictedPart& part : ours.parts) {
    const std::string name = part_of(part.component, '.');
    if (part.phase != Phase::kOptimizer && !name.empty())
      rows.at("module", name).ours.ms += part.ms;
  }
  return rows.take();
}

// Returns how often softmax ran in a forward pass; 0 if a kernel computes attention as a whole.
double softmax_calls(const ReadTrace& t) {
  double calls = 0;
  for (const Part* kernel : t.times.parts.of(PartLevel::kKernel)) {
    if (kernel->work == WorkClass::kAttention) return 0;
    std::string name = t.facts.names[kernel->number];
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    // On the host aten::softmax calls aten::_softmax, so only the latter counts.
    const bool is_softmax = t.facts.is_of_device()
                                ? name.find("softmax") != std::string::npos &&
                                      name.find("log_softmax") == std::string::npos &&
                                      name.find("logsoftmax") == std::string::npos
                                : name == "aten::_softmax";
    const bool is_forward = kernel->place.pass == TracePass::kForward;
    if (is_softmax && is_forward) calls += static_cast<double>(kernel->times.count());
  }
  return calls / static_cast<double>(t.times.count());
}

// Returns the sizes in bytes of a tensor of attention scores (batch × heads × context²), without
// those that other tensors of the step have, as only its size tells what a block of a file is.
std::set<std::int64_t> sizes_of_scores(const OurStep& ours) {
  const BatchShape& shape = ours.run.shape;
  const std::int64_t elements = shape.batch * ours.run.model.heads * shape.context * shape.context;
  std::set<std::int64_t> out{4 * elements};
  if (ours.run.precision.autocast || ours.run.precision.parameters != DType::kF32)
    out.insert(2 * elements);
  std::erase_if(out, [&](std::int64_t bytes) { return ours.flash_sizes.contains(bytes); });
  return out;
}

template <class Row>
Fields<Row> bytes_fields() {
  return {{as_key(col::what), &Row::what},
          {bytes_column("theirs_bytes", "theirs"), &Row::theirs},
          {col::ours_bytes("predicted"), &Row::ours},
          {col::difference_bytes("theirs less ours"),
           [](const Row& r) { return Json(r.theirs - r.ours); }},
          {int_column("theirs_blocks", "blocks"), &Row::blocks},
          {int_column("ours_blocks", "our blocks"), &Row::our_blocks}};
}

}  // namespace

OurStep our_step(const RunSpec& run, const DeviceTraits& traits) {
  OurStep out{.run = run, .memory = predict_memory(run, traits)};
  for (const AttentionForm form : kAll<AttentionForm>) {
    RunSpec other = run;
    other.attention = form;
    const bool is_same = run.attention == form, is_flash = form == AttentionForm::kFlash;
    const MemoryRun memory = is_same ? out.memory : predict_memory(other, traits);
    (is_flash ? out.flash_peak_bytes : out.naive_peak_bytes) = memory.predicted_peak_bytes;
    if (!is_flash) continue;
    for (const MappedBuffer& buffer : memory.map.buffers) out.flash_sizes.insert(buffer.bytes);
  }
  return out;
}

std::vector<Table> beside_tables(const ReadTrace& theirs, const OurStep& ours) {
  const Fields<BesideRow> fields{
      {as_key(col::level("the kind of the row")), &BesideRow::level},
      {as_key(col::name), [](const BesideRow& r) { return or_null(r.name); }},
      {real_column("theirs_ms", "theirs", "ms", -1, "mean of a step"),
       [](const BesideRow& r) { return Json(r.theirs.ms); }},
      {real_column("ours_ms", "ours", "ms", -1, "predicted"),
       [](const BesideRow& r) { return Json(r.ours.ms); }},
      {real_column("difference_ms", "difference", "ms", -1, "theirs less ours"),
       [](const BesideRow& r) { return Json(r.theirs.ms - r.ours.ms); }},
      {real_column("theirs_calls", "their kernels", "", -1, "per step"),
       [](const BesideRow& r) { return positive_or_null(r.theirs.calls); }},
      {real_column("ours_calls", "our kernels", "", -1, "per step"),
       [](const BesideRow& r) { return positive_or_null(r.ours.calls); }}};
  struct Step {
    const OurStep& ours;
    std::string file;
    double softmax_calls, layers;
  };
  const Fields<Step> step_fields{
      {as_key(col::file), &Step::file},
      {col::model.titled("ours"), [](const Step& s) { return Json(label_of(s.ours.run)); }},
      {col::where.titled("on"), [](const Step& s) { return or_null(s.ours.time.where); }},
      {col::source.titled("times"), [](const Step& s) { return Json(s.ours.time.source); }},
      {col::low_ms, [](const Step& s) { return Json(s.ours.time.time.low_ms); }},
      {col::high_ms, [](const Step& s) { return Json(s.ours.time.time.high_ms); }},
      {col::peak_bytes.titled("our peak"),
       [](const Step& s) { return Json(s.ours.memory.predicted_peak_bytes); }},
      {real_column("softmax_calls", "softmax", "", -1,
                   "kernels of a step, where no kernel computes attention as a whole"),
       [](const Step& s) { return when(s.softmax_calls >= s.layers, s.softmax_calls); }},
      {bytes_column("naive_peak_bytes", "naive", "our peak with attention that keeps its scores"),
       [](const Step& s) { return Json(s.ours.naive_peak_bytes); }},
      {bytes_column("flash_peak_bytes", "flash", "our peak with attention in tiles"),
       [](const Step& s) { return Json(s.ours.flash_peak_bytes); }},
      {bytes_column("scores_bytes", "scores", "what attention in tiles saves of the peak"),
       [](const Step& s) { return Json(s.ours.naive_peak_bytes - s.ours.flash_peak_bytes); }}};
  const Step step[] = {{ours, theirs.facts.path.filename().string(), softmax_calls(theirs),
                        static_cast<double>(ours.run.model.layers)}};
  return {table_of("beside", "Beside our program of the model", fields,
                   rows_of(theirs, ours.time.time)),
          table_of("beside_step", "Our program", step_fields, step)};
}

Table beside_table(const SnapshotFacts& theirs, const OurStep& ours) {
  struct Row {
    std::string what;
    std::int64_t theirs = 0, ours = 0, blocks = 0, our_blocks = 0;
  };
  std::map<std::string, Row> categories;
  for (const SnapshotHolder& holder : theirs.holders) {
    if (holder.category.empty()) continue;
    Row& row = categories[holder.category];
    row.theirs += holder.bytes;
    row.blocks += holder.blocks;
  }
  Row peak{"the peak", theirs.peak_bytes, ours.memory.predicted_peak_bytes};
  const std::set<std::int64_t> sizes = sizes_of_scores(ours);
  Row squared{"batch × heads × context²"};
  for (const auto& [bytes, blocks] : theirs.sizes_at_peak) {
    peak.blocks += blocks;
    if (!sizes.contains(bytes)) continue;
    squared.theirs += bytes * blocks;
    squared.blocks += blocks;
  }
  for (const MappedBuffer& buffer : ours.memory.map.buffers) {
    if (!buffer.at_peak) continue;
    ++peak.our_blocks;
    const std::string category(name_of(buffer.category));
    if (!categories.empty()) {
      categories[category].ours += buffer.bytes;
      ++categories[category].our_blocks;
    }
    if (!sizes.contains(buffer.bytes)) continue;
    squared.ours += buffer.bytes;
    ++squared.our_blocks;
  }
  std::vector<Row> rows{peak};
  if (!sizes.empty()) rows.push_back(squared);
  for (auto& [name, row] : categories) {
    row.what = name;
    rows.push_back(row);
  }
  Table out =
      table_of("beside_memory", "Beside our program of the model", bytes_fields<Row>(), rows);
  out.notes.push_back("ours: " + label_of(ours.run) + ", predicted; nothing of it ran");
  return out;
}

}  // namespace tracestep
