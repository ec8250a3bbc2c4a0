#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lab/read/snapshot_file.h"
#include "lab/read/snapshot_replay.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostHolders = 500;
constexpr const char* kNoFrames = "not recorded";

std::string site_name(const std::string& site) {
  return site.empty() ? kNoFrames : site;
}

Fields<SnapshotFacts> snapshot_fields() {
  return {
      {as_key(col::file), &SnapshotFacts::file},
      {int_column("device"), &SnapshotFacts::device},
      {col::peak_bytes("of allocated blocks, at once"), &SnapshotFacts::peak_bytes},
      {bytes_column("reserved_at_peak_bytes", "reserved then"),
       [](const SnapshotFacts& f) { return when(!f.lacks_segments, f.reserved_at_peak_bytes); }},
      {bytes_column("most_reserved_bytes", "most reserved"),
       [](const SnapshotFacts& f) { return when(!f.lacks_segments, f.most_reserved_bytes); }},
      {col::allocated_bytes("at the end"), &SnapshotFacts::allocated_at_end_bytes},
      {col::reserved_bytes("at the end"), &SnapshotFacts::reserved_at_end_bytes},
      {col::unused_at_peak_bytes("reserved and not allocated, at the peak"),
       [](const SnapshotFacts& f) { return when(!f.lacks_segments, f.unused_at_peak.bytes); }},
      {bytes_column("largest_at_peak_bytes", "in one piece"),
       [](const SnapshotFacts& f) {
         return when(!f.lacks_segments, f.unused_at_peak.largest_bytes);
       }},
      {col::unused_bytes("reserved and not allocated, at the end"),
       [](const SnapshotFacts& f) { return Json(f.unused_at_end.bytes); }},
      {real_column("unused_percent", "unused", "%", 1, "of what is reserved at the end"),
       [](const SnapshotFacts& f) {
         return Json(percent_of(f.unused_at_end.bytes, f.reserved_at_end_bytes));
       }},
      {col::largest_unused_bytes,
       [](const SnapshotFacts& f) { return Json(f.unused_at_end.largest_bytes); }},
      {bytes_column("releasable_bytes", "releasable",
                    "at the end, in segments without a block: empty_cache() gives them back"),
       [](const SnapshotFacts& f) { return Json(f.unused_at_end.releasable_bytes); }},
      {data_only(bytes_column("releasable_at_peak_bytes")),
       [](const SnapshotFacts& f) {
         return when(!f.lacks_segments, f.unused_at_peak.releasable_bytes);
       }},
      {int_column("segments"), &SnapshotFacts::segments},
      {data_only(int_column("unused_pieces", "", "at the end")),
       [](const SnapshotFacts& f) { return Json(f.unused_at_end.pieces); }},
      {data_only(bool_column("is_expandable", "", "some segments are expandable")),
       &SnapshotFacts::is_expandable},
      {data_only(col::events), &SnapshotFacts::events},
      {data_only(int_column("peak_event", "", "events before the peak")),
       &SnapshotFacts::peak_event},
      {data_only(bool_column("lost_events")), &SnapshotFacts::lost_events}};
}

}  // namespace

std::vector<Table> snapshot_tables(const SnapshotFacts& facts) {
  Table whole =
      table_of("snapshot", "Memory of the snapshot", snapshot_fields(), std::span(&facts, 1));
  if (facts.events == 0) {
    whole.notes.push_back(
        "the file has no events: the peak is the state at its end (_record_memory_history() "
        "records)");
  }
  if (facts.lacks_segments) {
    whole.notes.push_back(
        "more was allocated than reserved: the file lacks events of segments, and what was "
        "reserved before its end is not known");
  }
  if (facts.lost_events) {
    whole.notes.push_back(
        "the recording had room for its last events alone: max_entries is the room");
  }
  std::vector<Table> out{std::move(whole)};

  const Fields<SnapshotHolder> holder{
      {as_key(col::site("the innermost line outside of PyTorch")),
       [](const SnapshotHolder& h) { return Json(site_name(h.site)); }},
      {as_key(col::category), [](const SnapshotHolder& h) { return or_null(h.category); }},
      {col::bytes, &SnapshotHolder::bytes},
      {with_digits(1, col::share_percent("of the peak")),
       [&](const SnapshotHolder& h) { return Json(percent_of(h.bytes, facts.peak_bytes)); }},
      {col::blocks, &SnapshotHolder::blocks}};
  std::vector<SnapshotHolder> most(
      facts.holders.begin(), facts.holders.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                         facts.holders.size(), kMostHolders)));
  out.push_back(table_of("holders", "Who holds the peak", holder, most));
  if (facts.holders.size() > kMostHolders) {
    out.back().notes.push_back(
        fmt::format("{} more hold less", facts.holders.size() - kMostHolders));
  }

  if (Table settings = snapshot_settings_table(facts); !settings.rows.empty()) {
    out.push_back(std::move(settings));
  }
  if (!facts.out_of_memory.empty()) {
    const Fields<SnapshotOutOfMemory> oom{
        {col::site.titled("asked at"),
         [](const SnapshotOutOfMemory& o) { return Json(site_name(o.site)); }},
        {col::asked_bytes, &SnapshotOutOfMemory::asked_bytes},
        {bytes_column("device_free_bytes", "free on the device"),
         &SnapshotOutOfMemory::device_free_bytes},
        {col::allocated_bytes, &SnapshotOutOfMemory::allocated_bytes},
        {col::reserved_bytes, &SnapshotOutOfMemory::reserved_bytes},
        {col::unused_bytes.titled("reserved, unused"),
         [](const SnapshotOutOfMemory& o) { return Json(o.unused.bytes); }},
        {col::largest_unused_bytes,
         [](const SnapshotOutOfMemory& o) { return Json(o.unused.largest_bytes); }},
        {text_column("remedy", "what would help"), &SnapshotOutOfMemory::remedy}};
    out.push_back(table_of("out_of_memory", "Where memory ran out", oom, facts.out_of_memory));
  }
  if (!facts.moments.empty()) {
    const Fields<SnapshotMoment> moment{
        {as_key(col::event), &SnapshotMoment::event},
        {data_only(int_column("time_us")), &SnapshotMoment::time_us},
        {col::allocated_bytes, &SnapshotMoment::allocated_bytes},
        {col::reserved_bytes, &SnapshotMoment::reserved_bytes}};
    out.push_back(table_of("timeline", "Memory by event", moment, facts.moments));
  }
  return out;
}

Table snapshot_stack(const SnapshotFacts& facts) {
  Table out{.name = "stack@the recording", .title = "Allocated bytes by holder, by event"};
  // The columns of a step's time line (lab/memory/tables.h); here the rows are events.
  out.columns = {as_key(col::event), col::op, col::path, col::phase, col::time_ms.titled("time")};
  const std::size_t count = facts.moments.empty() ? 0 : facts.moments.front().held.size();
  for (std::size_t i = 0; i < count; ++i) {
    out.columns.push_back(bytes_column(
        fmt::format("holder_{}_bytes", i + 1),
        site_name(facts.holders[i].site) +
            (facts.holders[i].category.empty() ? "" : ", " + facts.holders[i].category)));
  }
  out.columns.push_back(bytes_column("other_bytes", "others"));
  out.columns.push_back(col::total_bytes.titled("allocated"));
  const std::int64_t begin = facts.moments.empty() ? 0 : facts.moments.front().time_us;
  for (const SnapshotMoment& moment : facts.moments) {
    std::vector<Json> row = {Json(moment.event), Json("event"), Json(std::to_string(moment.event)),
                             Json("of the recording"),
                             Json(1e-3 * static_cast<double>(moment.time_us - begin))};
    std::int64_t others = moment.allocated_bytes;
    for (const std::int64_t bytes : moment.held) {
      row.emplace_back(bytes);
      others -= bytes;
    }
    row.emplace_back(others);
    row.emplace_back(moment.allocated_bytes);
    out.add_row(std::move(row));
  }
  return out;
}

Table snapshot_difference(const SnapshotFacts& a, const SnapshotFacts& b) {
  struct Row {
    std::string site;
    std::int64_t a = 0, b = 0;
  };
  std::map<std::string, Row> by_site;
  for (const SnapshotHolder& h : a.holders) by_site[h.site].a += h.bytes;
  for (const SnapshotHolder& h : b.holders) by_site[h.site].b += h.bytes;
  std::vector<Row> rows;
  for (auto& [site, row] : by_site) {
    row.site = site_name(site);
    if (row.a != row.b) rows.push_back(row);
  }
  std::ranges::stable_sort(
      rows, [](const Row& x, const Row& y) { return std::abs(x.b - x.a) > std::abs(y.b - y.a); });
  if (rows.size() > kMostHolders) rows.resize(kMostHolders);
  rows.insert(rows.begin(), {"the peak", a.peak_bytes, b.peak_bytes});
  const Fields<Row> fields{
      {as_key(col::site), &Row::site},
      {bytes_column("a_bytes", "A"), &Row::a},
      {bytes_column("b_bytes", "B"), &Row::b},
      {bytes_column("change_bytes", "change"), [](const Row& r) { return Json(r.b - r.a); }}};
  return table_of("holder_changes", "What differs at the peak", fields, rows);
}

}  // namespace tracestep
