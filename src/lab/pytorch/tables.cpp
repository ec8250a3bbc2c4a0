#include "lab/pytorch/tables.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <span>

#include <fmt/format.h>

#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostHolders = 200;
// The most percent by which peaks differed from measured ones (bench/results/pytorch-memory.md).
constexpr double kRecordedBand = 4.0, kEstimatedBand = 15.0;

PytorchCard without_limit(PytorchCard card) {
  card.usable_bytes = 0;
  return card;
}

// Returns the memory that a card needs to run a list, with the bytes outside of the allocator.
std::int64_t needed_bytes(const AllocationList& list, const AllocatorSettings& settings,
                          const PytorchCard& card) {
  return least_reserved_bytes(list, settings, card) + card.outside_bytes;
}

struct Answer {
  const PytorchQuestion& q;
  PytorchReplay free;
  std::int64_t needed_bytes = 0;
  std::optional<PytorchOutOfMemory> out = {};
  AllocationEvent at = {};  // where memory runs out

  bool has_limit() const { return q.card.usable_bytes > 0; }
  Json where(const std::string& text) const { return when(out.has_value(), or_null(text)); }
};

Json short_by(const Answer& a, std::int64_t needed) {
  return when(a.has_limit() && needed > a.q.card.usable_bytes, needed - a.q.card.usable_bytes);
}
Json spare_of(const Answer& a, std::int64_t needed) {
  return when(a.has_limit() && needed <= a.q.card.usable_bytes, a.q.card.usable_bytes - needed);
}

// Says "model.py:84 forward, in _log_softmax of head", or "cast of head" where no line is known.
std::string where_of(const AllocationList& list, const AllocationEvent& at) {
  std::string out = list.name(at.site);
  for (const auto& [between, number] : {std::pair{", in ", at.op}, {" of ", at.module}}) {
    if (list.name(number).empty()) continue;
    if (!out.empty()) out += between;
    out += list.name(number);
  }
  return out.empty() ? std::string(name_of(at.part)) : out;
}

Fields<Answer> answer_fields() {
  using A = const Answer&;
  const auto name = [](A a, std::uint32_t number) { return a.where(a.q.list.name(number)); };
  return {
      {as_key(text_column("origin", "list", "recorded from the module's own step, or estimated")),
       [](A a) { return a.q.list.is_recorded ? "recorded" : "estimated"; }},
      {text_column("torch", "PyTorch"), [](A a) { return or_null(a.q.list.torch); }},
      {col::settings("of the allocator"),
       [](A a) { return a.q.settings_text.empty() ? "default" : a.q.settings_text; }},
      {col::peak_bytes.titled("allocated", "max_memory_allocated()"),
       [](A a) { return a.free.statistics.most_allocated_bytes; }},
      {col::reserved_bytes("max_memory_reserved(), on a larger card"),
       [](A a) { return a.free.statistics.most_reserved_bytes; }},
      {col::unused_at_peak_bytes("reserved and not allocated"),
       [](A a) { return a.free.unused_at_peak.bytes; }},
      {col::outside_bytes("the context, kernels, handles of libraries"),
       [](A a) { return a.q.card.outside_bytes; }},
      {col::needed_bytes("the least card on which it runs"), [](A a) { return a.needed_bytes; }},
      {real_column("band_percent", "band", "%", 0, "by which measured peaks differed at most"),
       [](A a) { return a.q.list.is_recorded ? kRecordedBand : kEstimatedBand; }},
      {col::limit_bytes.titled("card"),
       [](A a) { return when(a.has_limit(), a.q.card.usable_bytes); }},
      {col::missing_bytes, [](A a) { return short_by(a, a.needed_bytes); }},
      {col::spare_bytes.titled("spare"), [](A a) { return spare_of(a, a.needed_bytes); }},
      {col::where.titled("runs out at"), [](A a) { return a.where(where_of(a.q.list, a.at)); }},
      {data_only(col::site.titled("")), [=](A a) { return name(a, a.at.site); }},
      {data_only(col::module), [=](A a) { return name(a, a.at.module); }},
      {data_only(col::op), [=](A a) { return name(a, a.at.op); }},
      {data_only(col::part), [](A a) { return a.where(std::string(name_of(a.at.part))); }},
      {col::step, [](A a) { return a.out ? Json(a.out->step) : Json(); }},
      {col::asked_bytes, [](A a) { return a.out ? Json(a.out->asked_bytes) : Json(); }},
      {col::ours_bytes("the peak of our program of this step"),
       [](A a) { return when(a.q.ours_bytes > 0, a.q.ours_bytes); }},
      {data_only(col::steps), [](A a) { return std::ssize(a.q.list.steps); }},
      {data_only(col::events), [](A a) { return std::ssize(a.q.list.events); }}};
}

Answer answer_of(const PytorchQuestion& q) {
  Answer out{.q = q,
             .free = replay(q.list, q.settings, without_limit(q.card)),
             .needed_bytes = needed_bytes(q.list, q.settings, q.card)};
  if (out.has_limit()) out.out = replay(q.list, q.settings, q.card).out_of_memory;
  if (out.out) out.at = q.list.events[out.out->event];
  return out;
}

// Splits "model.py:84 forward" into the file, line and name of a frame.
SnapshotFrame frame_of(const std::string& site) {
  SnapshotFrame out{"", site, 0};
  const std::size_t space = site.find(' '), colon = site.rfind(':', space);
  if (space == site.npos || colon == site.npos) return out;
  out.file = site.substr(0, colon);
  out.name = site.substr(space + 1);
  std::from_chars(site.data() + colon + 1, site.data() + space, out.line);
  return out;
}

}  // namespace

Table pytorch_table(const PytorchQuestion& question) {
  const Answer answer = answer_of(question);
  Table out =
      table_of("pytorch", "What PyTorch would take", answer_fields(), std::span(&answer, 1));
  if (!question.list.is_recorded) {
    out.notes.push_back(
        "estimated from our own program by what each op of PyTorch keeps; the step of a module "
        "that tracestep.capture records is exact in its order");
  }
  return out;
}

Table pytorch_ways_table(const PytorchQuestion& question) {
  struct Row {
    PytorchWay way;
    CachingAllocator::Statistics free;
    std::int64_t needed_bytes = 0;
  };
  std::vector<Row> rows;
  for (PytorchWay& way : pytorch_ways(question.list, question.settings)) {
    const auto free = replay(way.list, way.settings, without_limit(question.card)).statistics;
    const std::int64_t needed = needed_bytes(way.list, way.settings, question.card);
    rows.push_back({std::move(way), free, needed});
  }
  const Answer asked{.q = question, .free = {}};
  using R = const Row&;
  const Fields<Row> fields{
      {as_key(col::change), [](R r) { return r.way.name; }},
      {to_copy(text_column("how", "in PyTorch")), [](R r) { return or_null(r.way.how); }},
      {col::peak_bytes.titled("allocated"), [](R r) { return r.free.most_allocated_bytes; }},
      {col::reserved_bytes, [](R r) { return r.free.most_reserved_bytes; }},
      {col::needed_bytes, [](R r) { return r.needed_bytes; }},
      {col::saved_bytes("of what is needed"),
       [&](R r) { return rows.front().needed_bytes - r.needed_bytes; }},
      {col::missing_bytes, [&](R r) { return short_by(asked, r.needed_bytes); }},
      {col::spare_bytes.titled("spare"), [&](R r) { return spare_of(asked, r.needed_bytes); }}};
  return table_of("pytorch_ways", "What would help in PyTorch", fields, rows);
}

std::vector<Table> pytorch_detail_tables(const PytorchQuestion& question) {
  const PytorchReplay free = replay(question.list, question.settings, without_limit(question.card));
  const std::size_t shown = std::min(free.holders.size(), kMostHolders);
  using H = const PytorchHolder&;
  const auto name = [&](std::uint32_t number) { return or_null(question.list.name(number)); };
  const Fields<PytorchHolder> holders{
      {as_key(col::module), [&](H h) { return name(h.module); }},
      {as_key(col::site.titled("line")), [&](H h) { return name(h.site); }},
      {as_key(col::part), [](H h) { return name_of(h.part); }},
      {col::bytes, &PytorchHolder::bytes},
      {with_digits(1, col::share_percent("of the peak")),
       [&](H h) { return Json(percent_of(h.bytes, free.statistics.most_allocated_bytes)); }},
      {col::blocks, &PytorchHolder::blocks}};
  using M = const PytorchMoment&;
  const Fields<PytorchMoment> moments{{as_key(col::event), &PytorchMoment::event},
                                      {col::step, &PytorchMoment::step},
                                      {col::part, [](M m) { return name_of(m.part); }},
                                      {col::allocated_bytes, &PytorchMoment::allocated_bytes},
                                      {col::reserved_bytes, &PytorchMoment::reserved_bytes}};
  return {table_of("pytorch_holders", "Who holds PyTorch's peak", holders,
                   std::span(free.holders).first(shown)),
          table_of("pytorch_timeline", "PyTorch's memory by event", moments, free.moments)};
}

MemorySnapshot pytorch_snapshot(const PytorchQuestion& question) {
  const AllocationList& list = question.list;
  MemorySnapshot out;
  CachingAllocator allocator(question.settings);
  std::vector<CachingAllocator::BlockId> ids(list.blocks);
  std::vector<const AllocationEvent*> births(list.blocks);
  std::map<std::int64_t, int> stack_at;  // of blocks alive, by address
  std::int64_t time_us = 0;
  for (const AllocationEvent& e : list.events) {
    SnapshotEvent event{.time_us = ++time_us};
    if (e.bytes == 0) {
      event.address = allocator.address(ids[e.block]);
      event.bytes = std::max(births[e.block]->bytes, std::int64_t{1});
      event.stack = stack_at.at(event.address);
      allocator.free(ids[e.block]);
      for (const char* action : {"free_requested", "free_completed"}) {
        event.action = action;
        out.events.push_back(event);
      }
      continue;
    }
    births[e.block] = &e;
    event.bytes = e.bytes == kLibraryWorkspace ? question.card.workspace_bytes : e.bytes;
    ids[e.block] = *allocator.allocate(event.bytes);
    event.address = allocator.address(ids[e.block]);
    event.action = "alloc";
    event.stack = static_cast<int>(out.stacks.size());
    out.stacks.push_back({frame_of(list.name(e.site)),
                          {"", list.name(e.module), 0},
                          {"", list.name(e.op), 0},
                          {"", std::string(name_of(e.part)), 0}});
    stack_at[event.address] = event.stack;
    out.events.push_back(event);
  }
  std::int64_t end = -1;
  for (const CachingAllocator::Piece& piece : allocator.pieces()) {
    const bool is_new = out.segments.empty() || piece.address != end ||
                        piece.segment != out.segments.back().address;
    if (is_new) {
      out.segments.push_back({.address = piece.address, .is_small = piece.is_small, .blocks = {}});
    }
    end = piece.address + piece.bytes;
    out.segments.back().bytes += piece.bytes;
    out.segments.back().blocks.push_back(
        {.address = piece.address,
         .bytes = piece.bytes,
         .requested_bytes = piece.requested_bytes,
         .is_active = piece.is_allocated,
         .stack = piece.is_allocated ? stack_at.at(piece.address) : 0});
  }
  return out;
}

}  // namespace tracestep
