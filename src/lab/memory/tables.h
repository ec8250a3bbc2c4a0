// Tables of a step's memory: predicted and measured bytes side by side, for one cell or a grid.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/memory/accounting.h"
#include "lab/memory/buffer_filter.h"
#include "lab/memory/run.h"
#include "lab/report/table.h"

namespace tracestep {

struct MemoryCell {
  MemoryRun run;
  std::int64_t limit_bytes = 0;  // 0: none
  // The peak by the accounting of another implementation; if it is set, it decides whether the cell
  // fits.
  std::optional<AccountedPeak> accounted = {};
};

// Names a cell: "small context 512 step fp32 fused".
std::string label_of(const MemoryCell& cell);
// Names the source line that built a value, "src/nn/transformer.cpp:112"; for a leaf, the one where
// it is first read.
std::string source_of(const Program& program, const MappedBuffer& buffer);

// Returns the component and op under which tables sum up a buffer: all layers together, and AdamW's
// states of all layers by kind ("ffn.w1", "adamw.m").
std::pair<std::string, std::string> holder_of(const MappedBuffer& buffer);

// --- of several cells -------------------------------------------------------------------------
// Makes a table with a row for each cell, with the peak, predicted and measured; its ratio to fp32;
// the bytes of the weights' narrow copies; and one tensor of the residual stream.
Table peak_table(std::span<const MemoryCell> cells);
// Makes a table with a row for each cell and a column for each category: the bytes at the peak.
Table category_grid(std::span<const MemoryCell> cells);
// Makes a table with a row for each cell, component and group (its weights, their gradients, its
// activations, …): the largest buffer, its op and source line, and the difference to the same in
// fp32, if that is in the grid.
Table component_table(std::span<const MemoryCell> cells, const BufferFilter& filter = {});

// --- of one cell --------------------------------------------------------------------------------
// Makes a row for each category: at the peak, predicted and measured, and the most at any moment.
Table category_table(const MemoryCell& cell);
// Makes a row for each phase: its highest total, and the node that runs at that moment.
Table phase_table(const MemoryCell& cell);
// Makes a row for each of the largest buffers, with path, op, source line and why it is alive.
Table largest_table(const MemoryCell& cell, std::size_t count = 10,
                    const BufferFilter& filter = {});
// Makes a table with a row for each component, op and category at the peak, with layers added up;
// the smallest ones share a row. The rows add up to the peak.
Table holder_table(const MemoryCell& cell);
// Makes a table with a row for every buffer of the step, predicted and measured, with its lifetime.
Table buffer_table(const MemoryCell& cell, const BufferFilter& filter = {});
// Makes rows from the bytes that the program requested to those that the allocator reserved, with
// every byte of the difference explained, and the cost of recording. Columns are empty where
// nothing was measured.
Table contract_table(const MemoryCell& cell);
// Makes a table with a row for each of `rows` stretches of the step, with its highest moment;
// `rows` = 0: one row per node.
Table timeline_table(const MemoryCell& cell, std::size_t rows = 40);

// Makes a table with a row for each node that runs: the bytes of each category at its fullest
// moment, by the program, which add up to the total, and the measured total beside them.
Table stack_table(const MemoryCell& cell);

// --- what one cell saves for backward ------------------------------------------------------------

// Makes a table with a row for each component and op, layers added up, and the total: bytes saved
// for backward, their share, and the cost of recomputing them.
Table saved_by_op_table(const MemoryCell& cell);
// Makes a table with a row for each block ("layers.0" to "layers.31" in one row when they save the
// same), values outside all blocks, and the total.
Table saved_by_block_table(const MemoryCell& cell);
// Makes a table with a row for every saved value with its readers, its lifetime and the cost of
// recomputing it; the cheapest per byte first.
Table ledger_table(const MemoryCell& cell);

// --- backward ------------------------------------------------------------------------------------

// Makes a table with a row for each value from before backward that backward reads in the filter's
// component, in the order of first reading: its maker, type, bytes, whether it is as large as the
// residual stream, and the reader.
Table load_table(const MemoryCell& cell, const BufferFilter& filter = {});
// Makes a table with a row for each block: the bytes alive before and after its backward, the bytes
// that its backward freed, and the bytes of its gradients, beside the program's figures.
Table gradient_slope_table(const MemoryCell& cell);

// Makes a table of the work that backward repeats, and the bytes kept for that; may have no rows.
Table recompute_table(const MemoryCell& cell);
// Returns the bytes kept only as inputs of recomputed nodes, without weights and the step's inputs.
std::int64_t held_for_recompute(const Program& program);

// Returns the cell that differs from `of` only by being in fp32; nullptr: the grid has none.
const MemoryCell* in_fp32(std::span<const MemoryCell> cells, const MemoryCell& of);

// Evaluates the closed forms of docs/memory.md for a cell, beside the program's and the measured
// bytes. Rows: quantities; columns: formula, formula with numbers, bytes by the formula, by the
// program and measured, and the difference in percent. Formulas that hold for a single number
// format are left out under autocast.
Table formula_table(const MemoryCell& cell);

// Return the elements that one layer saves for backward, and the bytes that are saved once outside
// the layers.
std::int64_t saved_elements_per_layer(const RunSpec& step);
std::int64_t saved_bytes_once(const RunSpec& step, std::int64_t element_bytes);
// Returns the elements that the course's PyTorch code saves per layer; `scores`: tensors of BHT².
std::int64_t course_elements_per_layer(const ModelConfig& model, BatchShape shape, int scores = 2);

}  // namespace tracestep
