#include "lab/read/snapshot_replay.h"

#include "lab/pytorch/replay.h"
#include "lab/read/snapshot_file.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr const char* kSettings[] = {"", "expandable_segments:True", "max_split_size_mb:128",
                                     "roundup_power2_divisions:8"};
constexpr std::int64_t kMostBytes = std::int64_t{1} << 45;

}  // namespace

Table snapshot_settings_table(const SnapshotFacts& facts) {
  struct Row {
    const char* settings;
    CachingAllocator::Statistics free;
  };
  std::vector<Row> rows;
  const bool is_known = facts.events > 0 && !facts.lacks_segments && facts.peak_bytes < kMostBytes;
  for (const char* settings : kSettings) {
    if (!is_known) break;
    const AllocatorSettings parsed = parse_allocator_settings("settings", settings);
    rows.push_back({settings, replay(facts.list, parsed, {}).statistics});
  }
  using R = const Row&;
  const Fields<Row> fields{
      {as_key(to_copy(col::settings.titled("PYTORCH_CUDA_ALLOC_CONF"))),
       [](R r) { return *r.settings == '\0' ? "default" : r.settings; }},
      {col::peak_bytes.titled("allocated"), [](R r) { return r.free.most_allocated_bytes; }},
      {col::reserved_bytes("at most"), [](R r) { return r.free.most_reserved_bytes; }},
      {bytes_column("recorded_bytes", "recorded", "most reserved in the recording"),
       [&](R) { return facts.most_reserved_bytes; }},
      {col::saved_bytes("of what the recording reserved"),
       [&](R r) { return facts.most_reserved_bytes - r.free.most_reserved_bytes; }}};
  Table out = table_of("settings", "The same events with other settings", fields, rows);
  if (is_known) {
    out.notes.push_back(
        "replayed in order on an empty cache; blocks that were there before the recording are "
        "allocated first, by address");
  }
  return out;
}

}  // namespace tracestep
