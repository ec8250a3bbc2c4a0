// Where the bytes of a step are, as tables: predicted and measured side by side, for one cell or a
// grid of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/memory/accounting.h"
#include "lab/memory/run.h"
#include "lab/report/table.h"

namespace tracestep {

struct Question;  // lab/report/question.h

struct MemoryCell {
  MemoryRun run;
  std::int64_t limit_bytes = 0;  // 0: none
  // The peak by another implementation's accounting, which then decides the status.
  std::optional<AccountedPeak> accounted = {};
};

// "small 512 step fp32 fused"
std::string label_of(const MemoryCell& cell);
// "src/nn/transformer.cpp:112", where the value was asked for; of a leaf where it is first read.
std::string source_of(const Program& program, const MappedBuffer& buffer);

// Component and op that a buffer is added up under: layers together, AdamW's states of all layers
// of a kind ("ffn.w1", "adamw.m").
std::pair<std::string, std::string> holder_of(const MappedBuffer& buffer);

// --- of several cells -------------------------------------------------------------------------
// Rows: cells. The peak, predicted and measured; what it is against fp32; the narrow copies of
// weights and one tensor of the residual stream on columns of their own.
Table peak_table(std::span<const MemoryCell> cells);
// Rows: cells; columns: bytes of each category at the peak.
Table category_grid(std::span<const MemoryCell> cells);

// --- of one cell --------------------------------------------------------------------------------
// Rows: categories; columns: at the peak, predicted and measured, and the most at any moment.
Table category_table(const MemoryCell& cell);
// Rows: phases; the highest total while one runs, and the node that runs then.
Table phase_table(const MemoryCell& cell);
// Rows: the largest buffers one by one, with path, op, source line and why they are alive.
Table largest_table(const MemoryCell& cell, std::size_t count = 10);
// Rows: component, op and category at the peak, layers added up, the smallest as one row; the rows
// add up to the peak.
Table holder_table(const MemoryCell& cell);
// Rows: every buffer of the step, predicted and measured, with its life.
Table buffer_table(const MemoryCell& cell);
// Rows: from what the program asked for to what the allocator reserved, the difference explained
// to zero; with the cost of recording. Empty columns where nothing was measured.
Table contract_table(const MemoryCell& cell);
// Rows: stretches of the step, each with its fullest moment; 0: every node is a row.
Table timeline_table(const MemoryCell& cell, std::size_t rows = 40);

// Rows: every node that runs; columns: the bytes of each category that are alive at its fullest
// moment, by the program, which add up to the total; the measured total beside it.
Table stack_table(const MemoryCell& cell);

// --- what one cell saves for backward ------------------------------------------------------------

// Rows: component and op, layers added up, and the total; columns: bytes, share, and what
// computing them again would take.
Table saved_by_op_table(const MemoryCell& cell);
// Rows: blocks ("layers.0" to "layers.31" in one row when they save the same), what belongs to
// none, and the total.
Table saved_by_block_table(const MemoryCell& cell);
// Rows: every saved value with its readers, its life and its price; the cheapest per byte first.
Table ledger_table(const MemoryCell& cell);

// What the study asks of these tables.
std::span<const Question> memory_questions();

}  // namespace tracestep
