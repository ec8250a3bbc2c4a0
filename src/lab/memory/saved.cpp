#include "lab/memory/saved.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/component.h"
#include "analysis/saved_ledger.h"
#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

// What computing again takes, added up.
struct Price {
  std::int64_t flops = 0, moved_bytes = 0, kernels = 0;
  double us = 0.0;

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

std::vector<Column> price_columns() {
  return {int_column("recompute_kernels", "kernels", "to run again for it"),
          int_column("recompute_flops", "FLOPs", "of these"),
          bytes_column("recompute_moved_bytes", "moved", "bytes read and written by these"),
          real_column("recompute_us", "time", "µs", 1, "of these kernels in a recorded step"),
          real_column("bytes_per_us", "bytes per µs", "", 0,
                      "freed for each microsecond of computing again")};
}

void add_price(std::vector<Json>& row, const MemoryRun& run, const Price& p, std::int64_t bytes) {
  row.emplace_back(p.kernels);
  row.emplace_back(p.flops);
  row.emplace_back(p.moved_bytes);
  if (run.node_ns.empty() || p.us <= 0.0) {
    row.resize(row.size() + 2);  // empty cells
    return;
  }
  row.emplace_back(p.us);
  row.emplace_back(static_cast<double>(bytes) / p.us);
}

void append(std::vector<Column>& columns, std::vector<Column> more) {
  for (Column& c : more) columns.push_back(std::move(c));
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

// "layers.0" … as one line as long as what they save is equal.
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
  Table table{.name = "saved_by_op", .title = "Saved for backward, by component and op"};
  table.columns = {text_column("component", {}, "model path, layers added up"),
                   text_column("op", {}, "that made it"),
                   int_column("values"),
                   bytes_column("largest_bytes", "largest"),
                   bytes_column("bytes"),
                   real_column("share_percent", "share", "%", 2),
                   text_column("read_by", "read by", "the first reader in backward")};
  append(table.columns, price_columns());
  const std::int64_t total = total_of(ledger);
  Price all;
  for (const auto& [key, sum] : sorted) {
    std::vector<Json> row{key.first,   key.second, sum.count,
                          sum.largest, sum.bytes,  percent_of(sum.bytes, total),
                          sum.reader};
    add_price(row, run, sum.price, sum.bytes);
    table.add_row(std::move(row));
    all += sum.price;
  }
  std::vector<Json> row{"total", Json(), static_cast<std::int64_t>(ledger.size()), Json(), total,
                        100.0,   Json()};
  add_price(row, run, all, total);
  table.add_row(std::move(row));
  table.notes.emplace_back(kHow);
  return table;
}

Table saved_by_block_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  const std::vector<LedgerItem> ledger = saved_ledger(run.program);
  Table table{.name = "saved_by_block", .title = "Saved for backward, by block"};
  table.columns = {text_column("block"),
                   int_column("blocks"),
                   int_column("values", "values", "of one block"),
                   bytes_column("bytes_each", "bytes of one"),
                   bytes_column("bytes", "bytes"),
                   real_column("share_percent", "share", "%", 2)};
  append(table.columns, price_columns());
  const std::int64_t total = total_of(ledger);
  Price all;
  for (const Block& block : blocks_of(run, ledger)) {
    std::vector<Json> row{
        block.blocks == 1 ? block.first : fmt::format("{} to {}", block.first, block.last),
        block.blocks,
        block.values,
        block.bytes,
        block.bytes * block.blocks,
        percent_of(block.bytes * block.blocks, total)};
    add_price(row, run, block.price, block.bytes * block.blocks);
    table.add_row(std::move(row));
    all += block.price;
  }
  std::vector<Json> row{"total", Json(), static_cast<std::int64_t>(ledger.size()),
                        Json(),  total,  100.0};
  add_price(row, run, all, total);
  table.add_row(std::move(row));
  table.notes.push_back(
      "a block's input is the result of the block before it and is counted there; once: embedding, "
      "last norm, head, loss and shared tables");
  return table;
}

Table ledger_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  Table table{.name = "ledger", .title = "Every value saved for backward"};
  table.columns = {text_column("path"),
                   text_column("op"),
                   text_column("source"),
                   text_column("type"),
                   bytes_column("bytes"),
                   int_column("made_at", "made at", "node"),
                   int_column("readers", {}, "backward nodes that read it"),
                   text_column("last_reader", "last reader"),
                   int_column("until", {}, "node; empty: to the end")};
  append(table.columns, price_columns());
  std::vector<LedgerItem> ledger = saved_ledger(run.program);
  std::vector<std::pair<double, const LedgerItem*>> order;
  for (const LedgerItem& item : ledger) {
    const Price p = price_of(run, item);
    // Without times, what moving and computing would take on a machine of 10 FLOPs per byte.
    const double cost =
        p.us > 0.0 ? p.us
                   : static_cast<double>(p.moved_bytes) + static_cast<double>(p.flops) / 10.0;
    order.emplace_back(static_cast<double>(item.bytes) / std::max(cost, 1e-9), &item);
  }
  std::ranges::stable_sort(order, std::greater{}, [](const auto& o) { return o.first; });
  for (const auto& [rank, item] : order) {
    const Node& node = maker(run, *item);
    const bool read = item->last_reader != kNoNode;
    std::string reader;
    if (read) {
      const Node& last = run.program.node(item->last_reader);
      reader = fmt::format("{} of {}", last.op->name, last.origin().path);
    }
    std::vector<Json> row{node.origin().path,
                          node.op->name,
                          source_of(node),
                          run.program.type(item->value).str(),
                          item->bytes,
                          std::int64_t{item->producer},
                          static_cast<std::int64_t>(item->readers.size()),
                          read ? Json(reader) : Json("kept as a result"),
                          read ? Json(std::int64_t{item->last_reader}) : Json()};
    add_price(row, run, price_of(run, *item), item->bytes);
    table.add_row(std::move(row));
  }
  table.notes.emplace_back(kHow);
  return table;
}

}  // namespace tracestep
