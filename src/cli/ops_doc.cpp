#include "cli/printed_pages.h"

#include <fmt/ranges.h>

#include "cli/text_lines.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "lab/report/known_columns.h"
#include "ops/functions.h"

namespace tracestep::cli {
namespace {

std::string yes_no(bool value) {
  return value ? "yes" : "no";
}

// Writes the signature of an op: "y = softmax(x, position?)".
std::string signature(const OpDef& op) {
  return fmt::format("{} = {}({})", fmt::join(op.outputs, ", "), op.name,
                     fmt::join(op.inputs, ", "));
}

std::string_view meaning_of(PrecisionClass precision) {
  return word_of(precision, {"in the low dtype", "in float32",
                             "in the widest dtype of its operands", "in any dtype, as it is"});
}

std::string_view meaning_of(Fusion fusion) {
  return word_of(fusion, {"no", "elementwise", "by pairs", "by rows"});
}

std::string donations(const OpDef& op) {
  std::string out;
  for (const Donation& d : op.donates) {
    out += fmt::format("{}{} may take the storage of {}", out.empty() ? "" : "; ",
                       op.outputs[static_cast<std::size_t>(d.output)],
                       op.inputs[static_cast<std::size_t>(d.input)]);
  }
  return out;
}

std::string facts(const OpDef& op) {
  std::string out = fmt::format("Kernel class {}; mixed precision runs it {}.",
                                name_of(op.kernel_class), meaning_of(op.precision_class));
  out += fmt::format(" Gradient: {}.", yes_no(static_cast<bool>(op.gradient)));
  out += fmt::format(" Decomposition: {}{}.", yes_no(static_cast<bool>(op.decompose)),
                     op.always_decompose ? ", always used" : "");
  if (op.fusion != Fusion::kNone) out += fmt::format(" Fused: {}.", meaning_of(op.fusion));
  if (op.is_view()) out += " A view where the layout allows it.";
  if (op.identity) out += " Left out by simplify where it changes nothing.";
  if (op.cheap_to_recompute) out += " Cheaper to compute again than to keep.";
  if (!op.donates.empty()) out += " Storage: " + donations(op) + ".";
  return out;
}

std::string attribute_line(const AttrDef& attr) {
  return wrapped(
      "- ", 2,
      fmt::format("`{}` ({}): {}", attr.name,
                  attr.fallback ? "default " + print(*attr.fallback) : "must be given", attr.doc));
}

std::string section(const OpDef& op) {
  std::string out =
      fmt::format("### {}\n\n`{}`\n\n{}\n", op.name, signature(op), wrapped("", 0, op.doc));
  for (const AttrDef& attr : op.attrs) out += attribute_line(attr);
  if (!op.attrs.empty()) out += "\n";
  out += wrapped("", 0, facts(op));
  if (!op.source.empty()) out += "\n" + wrapped("", 0, "Source: " + op.source + ".");
  return out;
}

}  // namespace

std::string ops_page() {
  ops::register_all();
  std::string out =
      "# Ops\n\n"
      "Every op of a program, from its record in `src/ops/`. Written by\n"
      "`tracestep show --docs ops`; a test keeps it equal to the records. `xs...` is one or more\n"
      "operands, `x?` one that may be left out. Elementwise ops take operands of one shape: the\n"
      "functions that build programs broadcast by explicit views.\n";
  std::vector<KernelClass> classes;
  for (const OpDef* op : all_ops()) {
    if (std::ranges::find(classes, op->kernel_class) == classes.end()) {
      classes.push_back(op->kernel_class);
    }
  }
  for (KernelClass kernel_class : classes) {
    out += fmt::format("\n## Kernel class: {}\n", name_of(kernel_class));
    for (const OpDef* op : all_ops()) {
      if (op->kernel_class == kernel_class) out += "\n" + section(*op);
    }
  }
  return out;
}

Table ops_table() {
  ops::register_all();
  Table table{.name = "ops",
              .title = "Ops",
              .columns = {col::op, text_column("call"), text_column("kernel_class", "class"),
                          col::precision, bool_column("gradient"), bool_column("decomposition"),
                          col::doc.titled("what it computes")}};
  for (const OpDef* op : all_ops()) {
    table.add_row({op->name, signature(*op), name_of(op->kernel_class),
                   name_of(op->precision_class), static_cast<bool>(op->gradient),
                   static_cast<bool>(op->decompose), op->doc});
  }
  return table;
}

}  // namespace tracestep::cli
