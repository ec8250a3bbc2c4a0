#include "lab/memory/tables.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/origins.h"
#include "analysis/saved_ledger.h"
#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

// The FLOPs that a machine does in the time of moving a byte, used if no times are known.
constexpr std::int64_t kFlopsPerByte = 10;

// The cost of recomputing values, added up.
struct Price {
  std::int64_t flops = 0, moved_bytes = 0, kernels = 0;
  double us = 0.0;

  // Adds up FLOPs and bytes to one amount, in moved bytes.
  double work() const {
    return static_cast<double>(moved_bytes) + static_cast<double>(flops) / kFlopsPerByte;
  }

  Price& operator+=(const Price& p) {
    flops += p.flops;
    moved_bytes += p.moved_bytes;
    kernels += p.kernels;
    us += p.us;
    return *this;
  }
};

Price price_of(const MemoryRun& run, const LedgerItem& item) {
  Price out{item.again.cost.flops, item.again.cost.bytes_read + item.again.cost.bytes_written,
            static_cast<std::int64_t>(item.again.nodes.size()), 0.0};
  if (run.node_ns.empty()) return out;
  for (NodeId id : item.again.nodes) {
    out.us += static_cast<double>(run.node_ns[static_cast<std::size_t>(id)]) * 1e-3;
  }
  return out;
}

// Saved bytes and the cost of recomputing them.
struct Priced {
  Price price;
  std::int64_t bytes;
  bool is_timed;  // kernels were

  bool has_time() const { return is_timed && price.us > 0.0; }
};

Priced priced(const MemoryRun& run, const Price& price, std::int64_t bytes) {
  return {price, bytes, !run.node_ns.empty()};
}

Fields<Priced> price_fields() {
  using P = const Priced&;
  return {
      {int_column("recompute_kernels", "kernels", "to run again for it"),
       [](P p) { return p.price.kernels; }},
      {int_column("recompute_flops", "FLOPs", "of these"), [](P p) { return p.price.flops; }},
      {bytes_column("recompute_moved_bytes", "moved", "bytes read and written by these"),
       [](P p) { return p.price.moved_bytes; }},
      {real_column("recompute_us", "time", "µs", 1, "of these kernels in a recorded step"),
       [](P p) { return when(p.has_time(), p.price.us); }},
      {timed(real_column("bytes_per_us", "bytes per µs", "", 0,
                         "freed for each microsecond of computing again")),
       [](P p) { return when(p.has_time(), static_cast<double>(p.bytes) / p.price.us); }},
      {data_only(real_column("freed_per_work", "freed", "", 3,
                             "bytes freed for each byte moved, or for as many FLOPs as the "
                             "column flops_per_byte says")),
       [](P p) { return when(p.price.work() > 0, static_cast<double>(p.bytes) / p.price.work()); }},
      {data_only(int_column("flops_per_byte")), [](P) { return kFlopsPerByte; }}};
}

const Node& maker(const MemoryRun& run, const LedgerItem& item) {
  return run.program.node(item.producer);
}

std::string source_of(const Node& node) {
  return fmt::format("{}:{}", node.origin().file, node.origin().line);
}

std::int64_t total_of(const std::vector<LedgerItem>& ledger) {
  std::int64_t out = 0;
  for (const LedgerItem& item : ledger) out += item.bytes;
  return out;
}

const char* const kHow =
    "computing a value again runs every kernel back to what is kept anyway: saved values, weights "
    "and inputs; views cost nothing";

// A row for consecutive blocks of the model that save the same.
struct Block {
  std::string first, last;
  std::int64_t blocks = 1, values = 0, bytes = 0;  // values and bytes of one
  Price price = {};
};

std::vector<Block> blocks_of(const MemoryRun& run, const std::vector<LedgerItem>& ledger) {
  std::vector<Block> each;
  Block once{.first = "once", .last = "once"};
  for (const LedgerItem& item : ledger) {
    const std::string name = block_of(maker(run, item).origin().path);
    if (name != "once" && (each.empty() || each.back().first != name)) {
      each.push_back({.first = name, .last = name});
    }
    Block& block = name == "once" ? once : each.back();
    ++block.values;
    block.bytes += item.bytes;
    block.price += price_of(run, item);
  }
  std::vector<Block> out;
  for (const Block& block : each) {
    Block* const before = out.empty() ? nullptr : &out.back();
    if (before != nullptr && before->bytes == block.bytes && before->values == block.values) {
      before->last = block.last;
      ++before->blocks;
      before->price += block.price;
    } else {
      out.push_back(block);
    }
  }
  if (once.values > 0) out.push_back(once);
  return out;
}

struct OpRow {
  std::string component;
  std::optional<std::string> op;
  std::int64_t values;
  std::optional<std::int64_t> largest_bytes;
  double share_percent;
  std::optional<std::string> read_by;
  Priced priced;
};

Fields<OpRow> op_fields() {
  using R = const OpRow&;
  Fields<OpRow> out = {
      {as_key(col::component), &OpRow::component},
      {as_key(col::op("that made it")), [](R r) { return or_null(r.op); }},
      {as_part("", col::values), &OpRow::values},
      {col::largest_bytes, [](R r) { return or_null(r.largest_bytes); }},
      {as_part("saved_bytes", col::bytes), [](R r) { return r.priced.bytes; }},
      {col::share_percent, &OpRow::share_percent},
      {col::read_by("the first reader in backward"), [](R r) { return or_null(r.read_by); }}};
  return out.add(price_fields(), [](R r) { return &r.priced; });
}

struct BlockRow {
  std::string block;
  std::optional<std::int64_t> blocks;
  std::int64_t values;
  std::optional<std::int64_t> bytes_each;
  double share_percent;
  Priced priced;
};

Fields<BlockRow> block_fields() {
  using R = const BlockRow&;
  Fields<BlockRow> out = {
      {col::block, &BlockRow::block},
      {col::blocks, [](R r) { return or_null(r.blocks); }},
      {col::values.titled("values", "of one block"), &BlockRow::values},
      {bytes_column("bytes_each", "bytes of one"), [](R r) { return or_null(r.bytes_each); }},
      {col::bytes.titled("bytes"), [](R r) { return r.priced.bytes; }},
      {col::share_percent, &BlockRow::share_percent}};
  return out.add(price_fields(), [](R r) { return &r.priced; });
}

struct LedgerRow {
  const Program& program;
  const LedgerItem& item;
  Priced priced;

  const Node& maker() const { return program.node(item.producer); }
  bool is_read() const { return item.last_reader != kNoNode; }
};

Fields<LedgerRow> ledger_fields() {
  using R = const LedgerRow&;
  Fields<LedgerRow> out = {
      {col::path, [](R r) { return r.maker().origin().path; }},
      {col::op, [](R r) { return r.maker().op->name; }},
      {col::source, [](R r) { return source_of(r.maker()); }},
      {col::type, [](R r) { return r.program.type(r.item.value).str(); }},
      {col::bytes, [](R r) { return r.item.bytes; }},
      {int_column("made_at", "made at", "node"), [](R r) { return std::int64_t{r.item.producer}; }},
      {int_column("readers", {}, "backward nodes that read it"),
       [](R r) { return std::ssize(r.item.readers); }},
      {text_column("last_reader", "last reader"),
       [](R r) {
         if (!r.is_read()) return Json("kept as a result");
         const Node& last = r.program.node(r.item.last_reader);
         return Json(fmt::format("{} of {}", last.op->name, last.origin().path));
       }},
      {int_column("until", {}, "node; empty: to the end"),
       [](R r) { return when(r.is_read(), std::int64_t{r.item.last_reader}); }}};
  return out.add(price_fields(), [](R r) { return &r.priced; });
}

}  // namespace

Table saved_by_op_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  const std::vector<LedgerItem> ledger = saved_ledger(run.program);
  struct Sum {
    std::int64_t count = 0, bytes = 0, largest = 0;
    Price price;
    std::string reader;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const LedgerItem& item : ledger) {
    const Node& node = maker(run, item);
    Sum& sum = sums[{component_of(node.origin().path), node.op->name}];
    ++sum.count;
    sum.bytes += item.bytes;
    sum.largest = std::max(sum.largest, item.bytes);
    sum.price += price_of(run, item);
    if (sum.reader.empty() && !item.readers.empty()) {
      const Node& reader = run.program.node(item.readers.front());
      sum.reader = fmt::format("{} of {}", reader.op->name, component_of(reader.origin().path));
    }
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& s) { return s.second.bytes; });
  const std::int64_t total = total_of(ledger);
  std::vector<OpRow> rows;
  Price all;
  for (const auto& [key, sum] : sorted) {
    rows.push_back({key.first, key.second, sum.count, sum.largest, percent_of(sum.bytes, total),
                    sum.reader, priced(run, sum.price, sum.bytes)});
    all += sum.price;
  }
  rows.push_back({"total", {}, std::ssize(ledger), {}, 100.0, {}, priced(run, all, total)});
  Table table =
      table_of("saved_by_op", "Saved for backward, by component and op", op_fields(), rows);
  table.notes.emplace_back(kHow);
  return table;
}

Table saved_by_block_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  const std::vector<LedgerItem> ledger = saved_ledger(run.program);
  const std::int64_t total = total_of(ledger);
  std::vector<BlockRow> rows;
  Price all;
  for (const Block& block : blocks_of(run, ledger)) {
    const std::int64_t bytes = block.bytes * block.blocks;
    rows.push_back(
        {block.blocks == 1 ? block.first : fmt::format("{} to {}", block.first, block.last),
         block.blocks, block.values, block.bytes, percent_of(bytes, total),
         priced(run, block.price, bytes)});
    all += block.price;
  }
  rows.push_back({"total", {}, std::ssize(ledger), {}, 100.0, priced(run, all, total)});
  Table table = table_of("saved_by_block", "Saved for backward, by block", block_fields(), rows);
  table.notes.push_back(
      "a block's input is the result of the block before it and is counted there; once: embedding, "
      "last norm, head, loss and shared tables");
  return table;
}

Table ledger_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  std::vector<LedgerItem> ledger = saved_ledger(run.program);
  std::vector<std::pair<double, const LedgerItem*>> order;
  for (const LedgerItem& item : ledger) {
    const Price p = price_of(run, item);
    const double cost = p.us > 0.0 ? p.us : p.work();
    order.emplace_back(static_cast<double>(item.bytes) / std::max(cost, 1e-9), &item);
  }
  std::ranges::stable_sort(order, std::greater{}, [](const auto& o) { return o.first; });
  std::vector<LedgerRow> rows;
  for (const auto& [rank, item] : order) {
    rows.push_back({run.program, *item, priced(run, price_of(run, *item), item->bytes)});
  }
  Table table = table_of("ledger", "Every value saved for backward", ledger_fields(), rows);
  table.notes.emplace_back(kHow);
  return table;
}

}  // namespace tracestep
