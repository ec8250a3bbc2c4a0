#include "lab/memory/tables.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/component.h"
#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kHolders = 25;

std::size_t at(Category c) {
  return static_cast<std::size_t>(c);
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
  return fmt::format("{} {} {} {} {} {}", step.model.name, step.shape.context, name_of(step.mode),
                     cell.precision, name_of(step.ops), name_of(step.attention));
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
    table.add_row({words_of(c), predicted.peak[i], when(run.measured, measured.peak[i]),
                   percent_of(predicted.peak[i], total), predicted.highest[i],
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
  for (std::size_t i : largest_buffers(cell.run.map, count)) {
    const MappedBuffer& b = cell.run.map.buffers[i];
    table.add_row({b.path, b.op, source_of(cell.run.program, b), b.bytes, words_of(b.category),
                   name_of(b.phase), b.at_peak, b.reason});
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
    table.add_row({component, op, words_of(category), h.count, h.largest, h.bytes,
                   percent_of(h.bytes, map.peak_bytes), h.reason});
  }
  if (rest.count > 0) {
    table.add_row({fmt::format("{} more", sorted.size() - kHolders), Json(), Json(), rest.count,
                   rest.largest, rest.bytes, percent_of(rest.bytes, map.peak_bytes),
                   "each less than those above"});
  }
  table.add_row({"unattributed", Json(), Json(), std::int64_t{0}, Json(), map.peak_bytes - total,
                 percent_of(map.peak_bytes - total, map.peak_bytes), Json()});
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
         words_of(b.category), name_of(b.phase), when(b.first != kNoNode, std::int64_t{b.first}),
         when(b.last < end, std::int64_t{b.last}), b.bytes,
         h == nullptr ? Json() : Json(h->requested_bytes),
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
