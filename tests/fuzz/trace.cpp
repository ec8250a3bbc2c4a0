// Recordings of torch.profiler, plain or gzip: every table of an accepted one, and it beside
// itself.
#include <algorithm>

#include "fuzz/fuzz_target.h"
#include "lab/read/file_kind.h"
#include "lab/read/trace_difference.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

namespace {

// A terminal and a page can show every text.
void look(const Table& table) {
  for (const auto& row : table.rows) {
    require(row.size() == table.columns.size());
    for (const Json& cell : row) {
      require(!cell.is_string() || escaped(cell.as_string()) == cell.as_string());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile bytes(text_of(data, size));
  accepts([&] {
    if (recorded_kind(bytes.path()) != RecordedKind::kTrace) return;
    const ReadTrace trace = read_trace_of_file(bytes.path());
    const std::vector<Table> tables = trace_tables(trace);
    require(!tables.empty());
    std::ranges::for_each(tables, look);
    look(op_table(trace));
    look(difference_table(trace, trace, {}));
  });
  return 0;
}
