#include "lab/study/memory_tables.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/component.h"
#include "analysis/cost.h"
#include "analysis/saved_ledger.h"
#include "ir/op_def.h"
#include "lab/study/columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kHolders = 25;

using ByCategory = std::array<std::int64_t, kCategoryCount>;

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}
std::size_t at(Category c) {
  return static_cast<std::size_t>(c);
}
double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}
std::string words(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '_', ' ');
  return out;
}
Json when(bool condition, Json value) {
  if (!condition) value = Json();
  return value;
}

struct CategoryTotals {
  ByCategory peak{}, highest{};  // at the peak of all; the most of each at any moment
};

// By the program: buffers come and go at their nodes.
CategoryTotals predicted_totals(const MemoryRun& run) {
  std::vector<ByCategory> change(run.program.nodes.size() + 1);
  CategoryTotals out;
  ByCategory live{};
  for (const MappedBuffer& b : run.map.buffers) {
    if (b.first == kNoNode) {
      live[at(b.category)] += b.bytes;
      continue;
    }
    change[at(b.first)][at(b.category)] += b.bytes;
    if (at(b.last) < run.program.nodes.size()) change[at(b.last) + 1][at(b.category)] -= b.bytes;
  }
  out.highest = live;
  for (const ByCategory& delta : change) {
    for (std::size_t c = 0; c < kCategoryCount; ++c) {
      live[c] += delta[c];
      out.highest[c] = std::max(out.highest[c], live[c]);
    }
  }
  out.peak = run.map.by_category;
  return out;
}

// By the recorded events.
CategoryTotals measured_totals(const MemoryRun& run) {
  CategoryTotals out;
  ByCategory live{};
  std::int64_t peak = -1;
  for (std::size_t i = 0; i < run.events.size(); ++i) {
    const MemoryEvent& e = run.events[i];
    const bool is_alloc = e.action == MemoryAction::kAlloc;
    if (!is_alloc && e.action != MemoryAction::kFree) continue;
    live[at(e.category)] += is_alloc ? e.requested_bytes : -e.requested_bytes;
    for (std::size_t c = 0; c < kCategoryCount; ++c) {
      out.highest[c] = std::max(out.highest[c], live[c]);
    }
    if (e.live_requested_bytes > peak && (i + 1 >= run.step_begin)) {
      peak = e.live_requested_bytes;
      out.peak = live;
    }
  }
  return out;
}

Json object_of(const ByCategory& bytes) {
  Json out = Json::object();
  for (Category c : kAllCategories) out[name_of(c)] = bytes[at(c)];
  return out;
}

Json phases_of(const MemoryRun& run) {
  Json out = Json::object();
  for (Phase phase : kAllPhases) {
    out[name_of(phase)] = run.map.by_phase[static_cast<std::size_t>(phase)];
  }
  return out;
}

// The largest buffers of the whole step; of equal ones the earliest.
std::vector<std::size_t> largest(const MemoryMap& map, std::size_t count) {
  std::vector<std::size_t> out(map.buffers.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
  std::ranges::stable_sort(out, std::greater{},
                           [&](std::size_t i) { return map.buffers[i].bytes; });
  out.resize(std::min(out.size(), count));
  return out;
}

Json largest_json(const MemoryRun& run) {
  Json out = Json::array();
  for (std::size_t i : largest(run.map, 10)) {
    const MappedBuffer& b = run.map.buffers[i];
    Json item = Json::object();
    item["path"] = b.path;
    item["op"] = b.op;
    item["source"] = source_of(run.program, b);
    item["bytes"] = b.bytes;
    item["category"] = name_of(b.category);
    item["phase"] = name_of(b.phase);
    item["at_peak"] = b.at_peak;
    item["reason"] = b.reason;
    out.push_back(std::move(item));
  }
  return out;
}

// The peak of the same cell in fp32, if it is in the grid.
const MemoryCell* in_fp32(std::span<const MemoryCell> cells, const MemoryCell& of) {
  const StepSpec& a = of.run.spec.step;
  for (const MemoryCell& cell : cells) {
    const StepSpec& b = cell.run.spec.step;
    if (cell.precision == "fp32" && a.model.name == b.model.name && a.mode == b.mode &&
        a.ops == b.ops && a.shape.batch == b.shape.batch && a.shape.context == b.shape.context) {
      return &cell;
    }
  }
  return nullptr;
}

// One tensor of the residual stream, as the program has it: the embedding's result.
std::int64_t residual_bytes(const Program& program) {
  for (const Node& node : program.nodes) {
    if (node.origin().path == "token_embeddings" && node.origin().phase == Phase::kForward &&
        node.op->name == "gather") {
      return program.type(node.outputs[0]).bytes();
    }
  }
  return 0;
}

// Without the narrow copies of weights, which have a column of their own.
std::int64_t saved_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const LedgerItem& item : saved_ledger(program)) {
    if (program.value(item.value).role != Role::kWeightCast) out += item.bytes;
  }
  return out;
}

std::string place_of(const Program& program, NodeId id) {
  if (id == kNoNode) return "before the step";
  const Node& node = program.node(id);
  return fmt::format("{} of {}", node.op->name,
                     node.origin().path.empty() ? "the program" : node.origin().path);
}

std::string bar(std::int64_t bytes, std::int64_t whole) {
  constexpr std::int64_t kWidth = 40;
  const std::int64_t n = whole > 0 ? (bytes * kWidth + whole / 2) / whole : 0;
  return std::string(static_cast<std::size_t>(n), '#');
}

}  // namespace

std::string label_of(const MemoryCell& cell) {
  const StepSpec& step = cell.run.spec.step;
  return fmt::format("{} {} {} {} {}", step.model.name, step.shape.context, name_of(step.mode),
                     cell.precision, name_of(step.ops));
}

std::string source_of(const Program& program, const MappedBuffer& buffer) {
  NodeId node = buffer.first;
  if (node == kNoNode) {  // a leaf: where it is read first
    const ValueId leaf = program.find_leaf(buffer.path);
    for (std::size_t i = 0; i < program.nodes.size() && node == kNoNode; ++i) {
      for (ValueId input : program.nodes[i].inputs) {
        if (program.value(input).layout.base == leaf) node = static_cast<NodeId>(i);
      }
    }
  }
  if (node == kNoNode) return "";
  const Origin& origin = program.node(node).origin();
  return origin.file.empty() ? "" : fmt::format("{}:{}", origin.file, origin.line);
}

std::pair<std::string, std::string> holder_of(const MappedBuffer& buffer) {
  for (const char* state : {"adamw.m", "adamw.v"}) {
    if (buffer.op == "state" && buffer.path.starts_with(std::string(state) + ".")) {
      return {component_of(buffer.path.substr(std::string_view(state).size() + 1)), state};
    }
  }
  return {component_of(buffer.path), buffer.op};
}

Table peak_table(std::span<const MemoryCell> cells) {
  Table table{.name = "memory", .title = "Bytes of a step"};
  const bool accounts =
      std::ranges::any_of(cells, [](const MemoryCell& c) { return c.accounted.has_value(); });
  const auto hidden_unless = [](bool shown, Column column) {
    column.data_only = !shown;
    return column;
  };
  table.columns = {
      text_column("size"),
      int_column("context"),
      int_column("batch"),
      data_only(int_column("vocab")),
      text_column("mode"),
      text_column("precision"),
      text_column("ops"),
      text_column("device", {}, "empty: predicted, no device was used"),
      text_column("status", {}, "ok, or oom against --memory-limit"),
      data_only(int_column("parameters")),
      data_only(bytes_column("peak_bytes", "peak", "measured where it was, else predicted")),
      bytes_column("predicted_peak_bytes", "predicted peak",
                   "the most that is alive at any moment, as requested, from the program alone"),
      bytes_column("measured_peak_bytes", "measured peak", "the same by the allocator"),
      bytes_column("saved_bytes", "saved",
                   "kept from forward for backward, without narrow copies of weights"),
      bytes_column("weight_cast_bytes", "weight copy",
                   "narrow copies of weights, the most at any moment"),
      bytes_column("residual_bytes", "residual", "one tensor of the residual stream"),
      real_column("versus_fp32_percent", "vs fp32", "%", 1, "of the predicted peak"),
      hidden_unless(accounts, bytes_column("accounted_bytes", "accounted",
                                           "the peak by --account-as, which decides the status")),
      hidden_unless(accounts, text_column("accounted_as", "formula")),
      data_only(bytes_column("reserved_bytes", "reserved", "segments at their most, measured")),
      {.name = "by_category",
       .kind = ColumnKind::kStructured,
       .description = "bytes alive at the predicted peak"},
      {.name = "by_phase",
       .kind = ColumnKind::kStructured,
       .description = "the highest predicted total while a phase runs"},
      {.name = "largest",
       .kind = ColumnKind::kStructured,
       .description = "the ten largest buffers, and why each is alive"}};
  for (const MemoryCell& cell : cells) {
    const MemoryRun& run = cell.run;
    const StepSpec& step = run.spec.step;
    const std::int64_t predicted = run.map.peak_bytes;
    const std::int64_t needed = cell.accounted ? cell.accounted->bytes : predicted;
    const bool fits = run.status == "ok" && (cell.limit_bytes == 0 || needed <= cell.limit_bytes);
    const bool measured = run.measured && run.status == "ok";
    const MemoryCell* fp32 = in_fp32(cells, cell);
    const double ratio = fp32 == nullptr ? 1.0
                                         : static_cast<double>(predicted) /
                                               static_cast<double>(fp32->run.map.peak_bytes);
    table.add_row({step.model.name,
                   step.shape.context,
                   step.shape.batch,
                   step.model.vocab,
                   name_of(step.mode),
                   cell.precision,
                   name_of(step.ops),
                   when(!run.device.empty(), run.device),
                   fits ? "ok" : "oom",
                   run.parameters,
                   measured ? run.peak_bytes : predicted,
                   predicted,
                   when(measured, run.peak_bytes),
                   saved_bytes(run.program),
                   predicted_totals(run).highest[at(Category::kWeightCast)],
                   residual_bytes(run.program),
                   when(fp32 != nullptr && fp32 != &cell, 100.0 * (ratio - 1.0)),
                   cell.accounted ? Json(cell.accounted->bytes) : Json(),
                   cell.accounted ? Json(cell.accounted->formula) : Json(),
                   when(measured, run.peak_reserved_bytes),
                   object_of(run.map.by_category),
                   phases_of(run),
                   largest_json(run)});
  }
  return table;
}

Table category_grid(std::span<const MemoryCell> cells) {
  Table table{.name = "by_category",
              .title = "Bytes alive at the predicted peak",
              .columns = {text_column("cell")}};
  for (Category c : kAllCategories) {
    table.columns.push_back(bytes_column(std::string(name_of(c)), words(name_of(c))));
  }
  for (const MemoryCell& cell : cells) {
    std::vector<Json> row{label_of(cell)};
    for (std::int64_t bytes : cell.run.map.by_category) row.emplace_back(bytes);
    table.add_row(std::move(row));
  }
  return table;
}

Table category_table(const MemoryCell& cell) {
  Table table{.name = "categories", .title = "Bytes by category"};
  table.columns = {text_column("category", {}, "stated by the program"),
                   bytes_column("predicted_bytes", "predicted at the peak"),
                   bytes_column("measured_bytes", "measured at the peak"),
                   real_column("share_percent", "share", "%", 2),
                   bytes_column("predicted_highest_bytes", "predicted highest",
                                "the most of this category at any moment of the step"),
                   bytes_column("measured_highest_bytes", "measured highest")};
  const MemoryRun& run = cell.run;
  const CategoryTotals predicted = predicted_totals(run), measured = measured_totals(run);
  std::int64_t total = 0, measured_total = 0;
  for (Category c : kAllCategories) {
    total += predicted.peak[at(c)];
    measured_total += measured.peak[at(c)];
  }
  for (Category c : kAllCategories) {
    const std::size_t i = at(c);
    if (predicted.highest[i] == 0 && measured.highest[i] == 0) continue;
    table.add_row({words(name_of(c)), predicted.peak[i], when(run.measured, measured.peak[i]),
                   percent(predicted.peak[i], total), predicted.highest[i],
                   when(run.measured, measured.highest[i])});
  }
  table.add_row({"unattributed", std::int64_t{0},
                 when(run.measured, run.status == "ok" ? run.peak_bytes - measured_total : 0), 0.0,
                 std::int64_t{0}, Json()});
  table.add_row({"total", total, when(run.measured, measured_total), 100.0, Json(), Json()});
  return table;
}

Table phase_table(const MemoryCell& cell) {
  Table table{.name = "phases", .title = "Peak per phase"};
  table.columns = {text_column("phase"),
                   int_column("kernels"),
                   bytes_column("predicted_bytes", "predicted peak"),
                   bytes_column("measured_bytes", "measured peak"),
                   text_column("at", {}, "the node that runs then"),
                   bytes_column("first_bytes", "at its first kernel"),
                   bytes_column("last_bytes", "at its last kernel"),
                   real_column("from_ms", "from", "ms", 3, "host time of its first allocation")};
  const MemoryRun& run = cell.run;
  for (Phase phase : kAllPhases) {
    std::int64_t kernels = 0, predicted = 0, measured = 0;
    const Moment *first = nullptr, *last = nullptr, *top = nullptr;
    for (const Moment& m : run.moments) {
      if (run.program.node(m.node).origin().phase != phase) continue;
      ++kernels;
      if (first == nullptr) first = &m;
      last = &m;
      if (top == nullptr || m.predicted_bytes > top->predicted_bytes) top = &m;
      predicted = std::max(predicted, m.predicted_bytes);
      measured = std::max(measured, m.measured_bytes);
    }
    if (first == nullptr) continue;
    table.add_row({name_of(phase), kernels, predicted, when(run.measured, measured),
                   place_of(run.program, top->node), first->predicted_bytes, last->predicted_bytes,
                   when(run.measured, static_cast<double>(first->time_ns) * 1e-6)});
  }
  return table;
}

Table largest_table(const MemoryCell& cell, std::size_t count) {
  Table table{.name = "largest", .title = "The largest buffers"};
  table.columns = {text_column("path"),
                   text_column("op"),
                   text_column("source", {}, "the line that asked for it; of a leaf its reader"),
                   bytes_column("bytes"),
                   text_column("category"),
                   text_column("phase"),
                   {.name = "at_peak", .title = "at peak", .kind = ColumnKind::kBool},
                   text_column("reason", {}, "why it is alive as long as it is")};
  for (std::size_t i : largest(cell.run.map, count)) {
    const MappedBuffer& b = cell.run.map.buffers[i];
    table.add_row({b.path, b.op, source_of(cell.run.program, b), b.bytes,
                   words(name_of(b.category)), name_of(b.phase), b.at_peak, b.reason});
  }
  return table;
}

Table holder_table(const MemoryCell& cell) {
  struct Held {
    std::int64_t count = 0, bytes = 0, largest = 0;
    std::string reason;
  };
  using Key = std::tuple<std::string, std::string, Category>;
  std::map<Key, Held> held;
  const MemoryMap& map = cell.run.map;
  for (const MappedBuffer& b : map.buffers) {
    if (!b.at_peak) continue;
    const auto [component, op] = holder_of(b);
    Held& h = held[{component, op, b.category}];
    ++h.count;
    h.bytes += b.bytes;
    h.largest = std::max(h.largest, b.bytes);
    if (h.reason.empty()) h.reason = b.reason;
  }
  std::vector<std::pair<Key, Held>> sorted(held.begin(), held.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& h) { return h.second.bytes; });
  Table table{.name = "holders", .title = "Who holds the peak"};
  table.columns = {text_column("component", {}, "model path, layers added up"),
                   text_column("op"),
                   text_column("category"),
                   int_column("buffers"),
                   bytes_column("largest_bytes", "largest"),
                   bytes_column("bytes"),
                   real_column("share_percent", "share", "%", 2),
                   text_column("reason", {}, "of the first of them")};
  std::int64_t total = 0, count = 0;
  Held rest;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [key, h] = sorted[i];
    const auto& [component, op, category] = key;
    total += h.bytes;
    count += h.count;
    if (i >= kHolders) {
      rest.count += h.count;
      rest.bytes += h.bytes;
      rest.largest = std::max(rest.largest, h.largest);
      continue;
    }
    table.add_row({component, op, words(name_of(category)), h.count, h.largest, h.bytes,
                   percent(h.bytes, map.peak_bytes), h.reason});
  }
  if (rest.count > 0) {
    table.add_row({fmt::format("{} more", sorted.size() - kHolders), Json(), Json(), rest.count,
                   rest.largest, rest.bytes, percent(rest.bytes, map.peak_bytes),
                   "each less than those above"});
  }
  table.add_row({"unattributed", Json(), Json(), std::int64_t{0}, Json(), map.peak_bytes - total,
                 percent(map.peak_bytes - total, map.peak_bytes), Json()});
  table.add_row({"total", Json(), Json(), count, Json(), map.peak_bytes, 100.0, Json()});
  return table;
}

Table buffer_table(const MemoryCell& cell) {
  Table table{.name = "buffers", .title = "Every buffer, predicted and measured"};
  table.columns = {
      int_column("buffer"),
      text_column("path"),
      text_column("op"),
      text_column("source"),
      text_column("category"),
      text_column("phase"),
      int_column("first_node", "from", "the node that needs it; empty: there before the step"),
      int_column("last_node", "to", "its last reader; empty: there after the step"),
      bytes_column("predicted_bytes", "predicted"),
      bytes_column("measured_bytes", "measured"),
      int_column("difference_bytes", "difference"),
      bytes_column("rounded_bytes", "rounded", "what the allocator set aside"),
      real_column("alloc_ms", "came", "ms", 3, "host time since the recorded step began"),
      real_column("free_ms", "went", "ms", 3),
      text_column("reason")};
  const MemoryRun& run = cell.run;
  std::vector<const Holding*> holding(run.map.buffers.size(), nullptr);
  for (const Holding& h : run.holdings) {
    if (h.buffer >= 0) holding[static_cast<std::size_t>(h.buffer)] = &h;
  }
  const auto ms = [&](std::size_t event) {
    return static_cast<double>(run.events[event].time_ns - run.step_begin_ns) * 1e-6;
  };
  const auto end = static_cast<NodeId>(run.program.nodes.size());
  for (std::size_t i = 0; i < run.map.buffers.size(); ++i) {
    const MappedBuffer& b = run.map.buffers[i];
    const Holding* h = run.measured ? holding[i] : nullptr;
    const bool in_step = h != nullptr && b.first != kNoNode;
    table.add_row(
        {static_cast<std::int64_t>(i), b.path, b.op, source_of(run.program, b),
         words(name_of(b.category)), name_of(b.phase),
         when(b.first != kNoNode, std::int64_t{b.first}), when(b.last < end, std::int64_t{b.last}),
         b.bytes, h == nullptr ? Json() : Json(h->requested_bytes),
         h == nullptr ? Json() : Json(h->requested_bytes - b.bytes),
         h == nullptr ? Json() : Json(h->rounded_bytes), in_step ? Json(ms(h->alloc)) : Json(),
         in_step && h->free ? Json(ms(*h->free)) : Json(), b.reason});
  }
  return table;
}

Table contract_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  Table table{.name = "contract", .title = "From what was predicted to what is reserved"};
  table.columns = {text_column("item"), bytes_column("bytes"), int_column("count")};
  table.add_row({"predicted peak, from the program", run.map.peak_bytes,
                 static_cast<std::int64_t>(run.map.buffers.size())});
  if (!run.measured || run.status != "ok") return table;
  // The live blocks and the segments at the moment of the measured peak.
  std::int64_t requested = 0, rounded = 0, segments = 0, live = 0, mapped = 0;
  std::int64_t at_requested = 0, at_rounded = 0, at_segments = 0, at_live = 0, at_mapped = 0;
  for (std::size_t i = 0; i < run.events.size(); ++i) {
    const MemoryEvent& e = run.events[i];
    const bool grows = e.action == MemoryAction::kAlloc || e.action == MemoryAction::kSegmentAlloc;
    const std::int64_t sign = grows ? 1 : -1;
    if (e.action == MemoryAction::kAlloc || e.action == MemoryAction::kFree) {
      requested += sign * e.requested_bytes;
      rounded += sign * e.rounded_bytes;
      live += sign;
    } else if (e.action != MemoryAction::kOom) {
      segments += sign * e.rounded_bytes;
      mapped += sign;
    }
    if (requested > at_requested && i + 1 >= run.step_begin) {
      at_requested = requested;
      at_rounded = rounded;
      at_segments = segments;
      at_live = live;
      at_mapped = mapped;
    }
  }
  const auto found = static_cast<std::int64_t>(surprises(run).size());
  table.add_row({"measured peak, by the allocator", run.peak_bytes, at_live});
  table.add_row({"difference", run.peak_bytes - run.map.peak_bytes, found});
  table.add_row({"rounding of blocks", at_rounded - at_requested, Json()});
  table.add_row({"free inside segments", at_segments - at_rounded, Json()});
  table.add_row({"reserved at that moment", at_segments, at_mapped});
  table.notes.push_back(
      "measured peak + rounding + free inside segments = reserved; counts are buffers, live "
      "blocks, blocks and buffers without a partner, segments");
  for (const std::string& surprise : surprises(run)) table.notes.push_back("surprise: " + surprise);
  if (run.step_ms > 0) {
    const auto events = static_cast<double>(run.events.size() - run.step_begin);
    const double own_ms = events * run.event_ns * 1e-6;
    table.notes.push_back(fmt::format(
        "recording costs {:.0f} events × {:.0f} ns = {:.4f} ms, {:.3f} % of a step of {:.3f} ms "
        "(median of {}; {:.3f} ms with recording on)",
        events, run.event_ns, own_ms, 100.0 * own_ms / run.step_ms, run.step_ms,
        run.spec.cost_steps, run.recorded_step_ms));
  }
  return table;
}

Table timeline_table(const MemoryCell& cell, std::size_t rows) {
  const MemoryRun& run = cell.run;
  Table table{.name = "timeline", .title = "Active memory through the step"};
  table.columns = {int_column("node", {}, "the fullest moment of this stretch of nodes"),
                   text_column("phase"),
                   text_column("path"),
                   text_column("op"),
                   real_column("time_ms", "at", "ms", 3, "host time since the recorded step began"),
                   bytes_column("predicted_bytes", "predicted"),
                   bytes_column("measured_bytes", "measured"),
                   text_column("bar", "of the peak")};
  const std::size_t count = run.moments.size();
  const std::size_t stretches = rows == 0 ? count : std::min(rows, count);
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t from = s * count / stretches, to = (s + 1) * count / stretches;
    const auto top = std::max_element(
        run.moments.begin() + static_cast<std::ptrdiff_t>(from),
        run.moments.begin() + static_cast<std::ptrdiff_t>(to),
        [](const Moment& a, const Moment& b) { return a.predicted_bytes < b.predicted_bytes; });
    const Node& node = run.program.node(top->node);
    table.add_row({std::int64_t{top->node}, name_of(node.origin().phase), node.origin().path,
                   node.op->name, when(run.measured, static_cast<double>(top->time_ns) * 1e-6),
                   top->predicted_bytes, when(run.measured, top->measured_bytes),
                   bar(top->predicted_bytes, run.map.peak_bytes)});
  }
  return table;
}

}  // namespace tracestep
