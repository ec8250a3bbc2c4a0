// The largest allocation of each component, in every cell of a grid, compared with float32.
#include <algorithm>
#include <map>

#include "lab/measure/run_columns.h"
#include "lab/memory/tables.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

// Names the group of a buffer. Every result of forward is an activation, saved for backward or not,
// as precisions differ in what they save; temporaries of backward or the optimizer are none.
std::string group_of(const MappedBuffer& buffer) {
  const bool is_of_forward = buffer.phase == Phase::kForward || buffer.phase == Phase::kRecompute;
  const bool is_activation = buffer.category == Category::kTemporary && is_of_forward;
  return words_of(is_activation ? Category::kActivation : buffer.category);
}

using Key = std::pair<std::string, std::string>;  // component and group
using LargestBuffers = std::map<Key, const MappedBuffer*>;

LargestBuffers largest_of(const MemoryCell& cell, const BufferFilter& filter) {
  LargestBuffers out;
  for (const MappedBuffer& buffer : cell.run.map.buffers) {
    if (!filter.admits(buffer) || buffer.host_bytes > 0) continue;
    const MappedBuffer*& most = out[{holder_of(buffer).first, group_of(buffer)}];
    if (most == nullptr || buffer.bytes > most->bytes) most = &buffer;
  }
  return out;
}

struct ComponentRow {
  const MemoryCell* cell;
  std::string component, group;
  const MappedBuffer* buffer;
  std::optional<std::int64_t> fp32_bytes;  // none: the cell is in fp32, or fp32 is not in the grid

  Json difference() const { return fp32_bytes ? Json(buffer->bytes - *fp32_bytes) : Json(); }
};

Fields<ComponentRow> fields() {
  using R = const ComponentRow&;
  Fields<ComponentRow> out{};
  out.add(axis_columns(), [](R r) { return &r.cell->run.spec.step; });
  return out.add(
      {{col::component, &ComponentRow::component},
       {text_column("group", {}, "activation: of forward, saved for backward or not"),
        &ComponentRow::group},
       {col::category, [](R r) { return words_of(r.buffer->category); }},
       {col::op("of its largest buffer"), [](R r) { return r.buffer->op; }},
       {col::source, [](R r) { return source_of(r.cell->run.program, *r.buffer); }},
       {col::largest_bytes, [](R r) { return r.buffer->bytes; }},
       {bytes_column("fp32_bytes", "in fp32", "the largest of the same component and group"),
        [](R r) { return or_null(r.fp32_bytes); }},
       {col::difference_bytes, &ComponentRow::difference}});
}

}  // namespace

Table component_table(std::span<const MemoryCell> cells, const BufferFilter& filter) {
  std::vector<LargestBuffers> largest;
  for (const MemoryCell& cell : cells) largest.push_back(largest_of(cell, filter));
  std::vector<ComponentRow> rows;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const MemoryCell* base = in_fp32(cells, cells[i]);
    const std::size_t begin = rows.size();
    for (const auto& [key, buffer] : largest[i]) {
      ComponentRow row{&cells[i], key.first, key.second, buffer, {}};
      if (base != nullptr && base != &cells[i]) {
        const LargestBuffers& other = largest[static_cast<std::size_t>(base - cells.data())];
        const auto found = other.find(key);
        row.fp32_bytes = found == other.end() ? 0 : found->second->bytes;
      }
      rows.push_back(std::move(row));
    }
    std::ranges::stable_sort(rows.begin() + static_cast<std::ptrdiff_t>(begin), rows.end(),
                             std::greater{},
                             [](const ComponentRow& row) { return row.buffer->bytes; });
  }
  Table table = table_of("components", "The largest allocation of each component", fields(), rows);
  show_unusual(table);
  return table;
}

}  // namespace tracestep
