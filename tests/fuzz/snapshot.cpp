// Memory snapshots of PyTorch, as `read` looks at them: every table, and one beside itself.
#include "lab/read/snapshot_file.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile bytes(text_of(data, size));
  accepts([&] {
    const SnapshotFacts facts = read_snapshot_facts(bytes.path());
    require(facts.moments.size() <= 1000);
    for (const SnapshotHolder& holder : facts.holders) {
      require(escaped(holder.site) == holder.site && escaped(holder.category) == holder.category);
    }
    require(!snapshot_tables(facts).empty());
    snapshot_difference(facts, facts);
  });
  return 0;
}
