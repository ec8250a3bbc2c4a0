#include "lab/memory/tables.h"

#include <algorithm>

#include "analysis/origins.h"
#include "base/units.h"
#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "passes/optimizer.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::size_t kHolders = 25;

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

std::int64_t leaves_on_host(const Program& program) {
  return std::ranges::count_if(
      program.leaves, [&](ValueId id) { return program.value(id).memory == Memory::kHost; });
}

}  // namespace

std::string label_of(const MemoryCell& cell) {
  return label_of(cell.run.spec.step);
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
  for (const std::string_view state : {kFirstMoment, kSecondMoment, kMuonMomentum}) {
    if (buffer.op == "state" && buffer.path.starts_with(std::string(state) + ".")) {
      std::string parameter = buffer.path.substr(state.size() + 1);
      const std::string scales = fmt::format(".{}", kMomentScales);
      if (parameter.ends_with(scales)) parameter.resize(parameter.size() - scales.size());
      return {component_of(parameter), std::string(state)};
    }
  }
  return {component_of(buffer.path), buffer.op};
}

Table category_table(const MemoryCell& cell) {
  Table table{.name = "categories", .title = "Bytes by category"};
  table.columns = {as_key(col::category("stated by the program")),
                   as_part("peak_bytes", col::predicted_bytes.titled("predicted at the peak")),
                   as_part("peak_bytes", col::measured_bytes.titled("measured at the peak")),
                   col::share_percent,
                   bytes_column("predicted_highest_bytes", "predicted highest",
                                "the most of this category at any moment of the step"),
                   bytes_column("measured_highest_bytes", "measured highest")};
  const MemoryRun& run = cell.run;
  const CategoryTotals predicted = predicted_totals(run), measured = measured_totals(run);
  std::int64_t total = 0, measured_total = 0;
  for (Category c : kAll<Category>) {
    total += predicted.peak[at(c)];
    measured_total += measured.peak[at(c)];
  }
  for (Category c : kAll<Category>) {
    const std::size_t i = at(c);
    if (predicted.highest[i] == 0 && measured.highest[i] == 0) continue;
    table.add_row({words_of(c), predicted.peak[i], when(run.measured, measured.peak[i]),
                   percent_of(predicted.peak[i], total), predicted.highest[i],
                   when(run.measured, measured.highest[i])});
  }
  table.add_cells(
      {{"category", "unattributed"},
       {"predicted_bytes", 0},
       {"measured_bytes",
        when(run.measured, run.status == Status::kOk ? run.peak_bytes - measured_total : 0)},
       {"share_percent", 0.0},
       {"predicted_highest_bytes", 0}});
  table.add_cells({{"category", "total"},
                   {"predicted_bytes", total},
                   {"measured_bytes", when(run.measured, measured_total)},
                   {"share_percent", 100.0}});
  if (const std::int64_t on_host = host_bytes(run.program); on_host > 0) {
    table.notes.push_back(
        fmt::format("{} lie in the host's memory and are not counted here", format_bytes(on_host)));
  }
  return table;
}

namespace {

// The nodes of a phase: how many, which come first and last, and where the most is alive.
struct PhaseRow {
  const MemoryRun& run;
  Phase phase;
  std::int64_t kernels = 0, predicted = 0, measured = 0;
  const Moment *first = nullptr, *last = nullptr, *top = nullptr;

  void add(const Moment& m) {
    ++kernels;
    if (first == nullptr) first = &m;
    last = &m;
    if (top == nullptr || m.predicted_bytes > top->predicted_bytes) top = &m;
    predicted = std::max(predicted, m.predicted_bytes);
    measured = std::max(measured, m.measured_bytes);
  }
};

Fields<PhaseRow> phase_fields() {
  using R = const PhaseRow&;
  return {
      {as_key(col::phase), [](R r) { return name_of(r.phase); }},
      {as_part("launches", col::kernels.titled("launching nodes", "each runs one kernel or more")),
       &PhaseRow::kernels},
      {as_part("peak_bytes", col::predicted_bytes.titled("predicted peak")), &PhaseRow::predicted},
      {col::measured_bytes.titled("measured peak"),
       [](R r) { return when(r.run.measured, r.measured); }},
      {text_column("at", {}, "the node that runs then"),
       [](R r) { return place_of(r.run.program, r.top->node); }},
      {bytes_column("first_bytes", "at its first kernel"),
       [](R r) { return r.first->predicted_bytes; }},
      {bytes_column("last_bytes", "at its last kernel"),
       [](R r) { return r.last->predicted_bytes; }},
      {real_column("from_ms", "from", "ms", 3, "host time of its first allocation"),
       [](R r) { return when(r.run.measured, static_cast<double>(r.first->time_ns) * 1e-6); }}};
}

}  // namespace

Table phase_table(const MemoryCell& cell) {
  std::vector<PhaseRow> rows;
  for (Phase phase : kAll<Phase>) {
    PhaseRow row{cell.run, phase};
    for (const Moment& m : cell.run.moments) {
      if (cell.run.program.node(m.node).origin().phase == phase) row.add(m);
    }
    if (row.first != nullptr) rows.push_back(row);
  }
  return table_of("phases", "Peak per phase", phase_fields(), rows);
}

Table largest_table(const MemoryCell& cell, std::size_t count, const BufferFilter& filter) {
  using B = const MappedBuffer&;
  const Program& program = cell.run.program;
  const Fields<MappedBuffer> fields = {
      {col::path, &MappedBuffer::path},
      {col::op, &MappedBuffer::op},
      {col::source("the line that asked for it; of a leaf its reader"),
       [&](B b) { return source_of(program, b); }},
      {col::bytes, &MappedBuffer::bytes},
      {col::category, [](B b) { return words_of(b.category); }},
      {col::phase, [](B b) { return name_of(b.phase); }},
      {bool_column("at_peak", "at peak"), &MappedBuffer::at_peak},
      {col::reason("why it is alive as long as it is"), &MappedBuffer::reason}};
  std::vector<MappedBuffer> buffers;
  for (std::size_t i : largest_buffers(cell.run.map, cell.run.map.buffers.size())) {
    const MappedBuffer& buffer = cell.run.map.buffers[i];
    if (buffers.size() < count && filter.admits(buffer)) buffers.push_back(buffer);
  }
  return table_of("largest", "The largest buffers", fields, buffers);
}

Table holder_table(const MemoryCell& cell) {
  const MemoryMap& map = cell.run.map;
  Holders holders;
  for (const MappedBuffer& b : map.buffers) {
    if (b.at_peak) holders.add(&b, b.bytes);
  }
  using H = const Holder&;
  const Fields<Holder> fields = {
      {col::component, &Holder::component},
      {col::op, [](H h) { return or_null(h.op); }},
      {col::category, [](H h) { return or_null(h.category); }},
      {col::buffers, &Holder::buffers},
      {col::largest_bytes, &Holder::largest_bytes},
      {col::bytes, &Holder::bytes},
      {col::share_percent, [&](H h) { return percent_of(h.bytes, map.peak_bytes); }},
      {col::reason("of the first of them"),
       [](H h) { return h.op ? h.reason : "none larger than those above"; }}};
  Table table = table_of("holders", "Who holds the peak", fields, holders.rows(kHolders));
  const std::int64_t unknown = map.peak_bytes - holders.bytes();
  table.add_cells({{"component", "unattributed"},
                   {"buffers", 0},
                   {"bytes", unknown},
                   {"share_percent", percent_of(unknown, map.peak_bytes)}});
  table.add_cells({{"component", "total"},
                   {"buffers", holders.buffers()},
                   {"bytes", map.peak_bytes},
                   {"share_percent", 100.0}});
  table.notes.push_back(
      "a buffer has the name of the op that wrote it first, and its last reader; where a later op "
      "takes its bytes over, the table of saved values names that op and its first reader in "
      "backward");
  return table;
}

namespace {

// A buffer, and the recorded block that held it; nullptr: nothing was measured.
struct BufferRow {
  const MemoryRun& run;
  std::int64_t index;
  const MappedBuffer& b;
  const Holding* block;

  double ms(std::size_t event) const {
    return static_cast<double>(run.events[event].time_ns - run.step_begin_ns) * 1e-6;
  }
  bool came_in_step() const { return block != nullptr && b.first != kNoNode; }
};

Fields<BufferRow> buffer_fields() {
  using R = const BufferRow&;
  const auto of_block = [](std::int64_t Holding::*member) {
    return [member](R r) { return r.block == nullptr ? Json() : Json(r.block->*member); };
  };
  return {
      {int_column("buffer"), &BufferRow::index},
      {as_key(col::path), [](R r) { return r.b.path; }},
      {as_key(col::op), [](R r) { return r.b.op; }},
      {col::source, [](R r) { return source_of(r.run.program, r.b); }},
      {as_key(col::category), [](R r) { return words_of(r.b.category); }},
      {as_key(col::phase), [](R r) { return name_of(r.b.phase); }},
      {int_column("first_node", "from", "the node that needs it; empty: there before the step"),
       [](R r) { return when(r.b.first != kNoNode, std::int64_t{r.b.first}); }},
      {int_column("last_node", "to", "its last reader; empty: there after the step"),
       [](R r) {
         return when(r.b.last < std::ssize(r.run.program.nodes), std::int64_t{r.b.last});
       }},
      {as_part("peak_bytes", col::predicted_bytes), [](R r) { return r.b.bytes; }},
      {data_only(col::host_bytes.titled("", "predicted, in the host's memory")),
       [](R r) { return r.b.host_bytes; }},
      {col::measured_bytes, of_block(&Holding::requested_bytes)},
      {int_column("difference_bytes", "difference"),
       [](R r) {
         return r.block == nullptr ? Json() : Json(r.block->requested_bytes - r.b.bytes);
       }},
      {bytes_column("rounded_bytes", "rounded", "what the allocator set aside"),
       of_block(&Holding::rounded_bytes)},
      {real_column("alloc_ms", "came", "ms", 3, "host time since the recorded step began"),
       [](R r) { return r.came_in_step() ? Json(r.ms(r.block->alloc)) : Json(); }},
      {real_column("free_ms", "went", "ms", 3),
       [](R r) { return r.came_in_step() && r.block->free ? Json(r.ms(*r.block->free)) : Json(); }},
      {col::reason, [](R r) { return r.b.reason; }}};
}

}  // namespace

Table buffer_table(const MemoryCell& cell, const BufferFilter& filter) {
  const MemoryRun& run = cell.run;
  std::vector<const Holding*> blocks(run.map.buffers.size(), nullptr);
  for (const Holding& h : run.holdings) {
    if (run.measured && h.buffer >= 0) blocks[static_cast<std::size_t>(h.buffer)] = &h;
  }
  std::vector<BufferRow> rows;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!filter.admits(run.map.buffers[i])) continue;
    rows.push_back({run, static_cast<std::int64_t>(i), run.map.buffers[i], blocks[i]});
  }
  return table_of("buffers", "Every buffer, predicted and measured", buffer_fields(), rows);
}

Table contract_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  Table table{.name = "contract", .title = "From what was predicted to what is reserved"};
  table.columns = {col::item, col::bytes, col::count};
  table.add_row({"predicted peak, from the program", run.predicted_peak_bytes,
                 static_cast<std::int64_t>(run.map.buffers.size())});
  if (run.plan) {
    table.add_row({"of it the arena", run.plan->arena_bytes, std::ssize(run.plan->places)});
    table.add_row({"the least an arena could have", run.plan->least_arena_bytes, Json()});
  }
  const bool has_run = run.measured && run.status == Status::kOk;
  if (const std::int64_t on_host = host_bytes(run.program); on_host > 0) {
    table.add_row({"in the host's memory, from the program", on_host, leaves_on_host(run.program)});
    if (has_run) table.add_row({"in the host's memory, by its allocator", run.host_bytes, Json()});
  }
  if (!has_run) return table;
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
  table.add_row({"difference", run.peak_bytes - run.predicted_peak_bytes, found});
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
        run.spec.protocol.steps, run.recorded_step_ms));
  }
  return table;
}

Table timeline_table(const MemoryCell& cell, std::size_t rows) {
  using M = const Moment&;
  const MemoryRun& run = cell.run;
  const auto node = [&](M m) -> const Node& { return run.program.node(m.node); };
  const Fields<Moment> fields = {
      {col::node("the fullest moment of this stretch of nodes"),
       [](M m) { return std::int64_t{m.node}; }},
      {col::phase, [&](M m) { return name_of(node(m).origin().phase); }},
      {col::path, [&](M m) { return node(m).origin().path; }},
      {col::op, [&](M m) { return node(m).op->name; }},
      {col::time_ms("host time since the recorded step began"),
       [&](M m) { return when(run.measured, static_cast<double>(m.time_ns) * 1e-6); }},
      {col::predicted_bytes, &Moment::predicted_bytes},
      {col::measured_bytes, [&](M m) { return when(run.measured, m.measured_bytes); }},
      {text_column("bar", "of the peak"),
       [&](M m) { return bar(m.predicted_bytes, run.map.peak_bytes); }}};
  const std::size_t count = run.moments.size();
  const std::size_t stretches = rows == 0 ? count : std::min(rows, count);
  std::vector<Moment> fullest;
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t from = s * count / stretches, to = (s + 1) * count / stretches;
    fullest.push_back(*std::ranges::max_element(std::span(run.moments).subspan(from, to - from), {},
                                                &Moment::predicted_bytes));
  }
  return table_of("timeline", "Active memory through the step", fields, fullest);
}

}  // namespace tracestep
