// Tables of the tensors that forward saves for backward, by the part of the layer that reads them.
#include <algorithm>

#include "analysis/saved.h"
#include "lab/compile/tables.h"
#include "lab/measure/run_columns.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

struct SavedCount {
  std::int64_t tensors = 0, full_size = 0, bytes = 0;
};

struct SavedRow {
  const RunSpec& run;
  std::string part;
  SavedCount count;
};

class SavedParts {
 public:
  SavedParts(const Program& program, const RunSpec& run)
      : program_(program), saved_(saved_for_backward(program)), run_(run) {}

  // Counts the values that backward of a node under this path reads.
  SavedCount read_by(const std::string& path) const {
    return count([&](const Saved& s) {
      return std::ranges::any_of(
          s.readers, [&](NodeId reader) { return is_under(program_.node(reader).origins, path); });
    });
  }
  // Counts the values that a forward node under this path made; of a fused one, a node of its body.
  SavedCount made_by(const std::string& path) const {
    return count([&](const Saved& s) { return is_under(origins_of(s), path); });
  }

 private:
  template <class Belongs>
  SavedCount count(Belongs belongs) const {
    SavedCount out;
    const std::int64_t full = run_.shape.batch * run_.shape.context * run_.model.d_model;
    for (const Saved& s : saved_) {
      if (!belongs(s)) continue;
      ++out.tensors;
      if (program_.type(s.value).count() >= full) ++out.full_size;
      out.bytes += s.bytes;
    }
    return out;
  }
  const SharedVector<Origin>& origins_of(const Saved& s) const {
    const Node& node = program_.node(s.producer);
    if (node.op->kernel_class != KernelClass::kFused) return node.origins;
    const Program& body = node.attrs.region("body");
    const auto result = std::ranges::find(node.outputs, s.value) - node.outputs.begin();
    NodeId maker = body.value(body.outputs[static_cast<std::size_t>(result)].value).producer;
    while (maker != kNoNode && body.node(maker).op->is_view()) {
      maker = body.value(body.node(maker).inputs[0]).producer;
    }
    return (maker == kNoNode ? node : body.node(maker)).origins;
  }
  static bool is_under(const SharedVector<Origin>& origins, const std::string& path) {
    return std::ranges::any_of(origins, [&](const Origin& origin) {
      return path.empty() || origin.path == path || origin.path.starts_with(path + ".");
    });
  }

  const Program& program_;
  const std::vector<Saved> saved_;
  const RunSpec& run_;
};

Fields<SavedRow> saved_fields() {
  using S = const SavedRow&;
  Fields<SavedRow> out{};
  out.add(program_columns(), [](S s) { return &s.run; });
  return out.add(
      {{col::part("whose backward reads them; a layer or the step: that made them"),
        [](S s) { return s.part; }},
       {int_column("tensors"), [](S s) { return s.count.tensors; }},
       {int_column("full_size", "full size", "of those, as large as the residual stream or larger"),
        [](S s) { return s.count.full_size; }},
       {col::bytes, [](S s) { return s.count.bytes; }}});
}

}  // namespace

Table way_saved_table(const DeviceFactory& make_device, std::span<const RunSpec> runs) {
  std::vector<SavedRow> rows;
  for (const RunSpec& run : runs) {
    const Program program = step_program(run, *make_device(run));
    const SavedParts parts(program, run);
    if (run.model.captured != nullptr) {  // its parts have other names
      rows.push_back({run, "step", parts.made_by("")});
      continue;
    }
    const std::string layer = scope::layer(run.model.layers - 1);
    const auto under = [&](std::initializer_list<std::string_view> scopes) {
      return scope::path({layer, scope::path(scopes)});
    };
    rows.push_back({run, "norm", parts.read_by(under({scope::kFirstNorm}))});
    rows.push_back({run, "softmax", parts.read_by(under({scope::kAttention, scope::kSoftmax}))});
    rows.push_back({run, "swiglu", parts.read_by(under({scope::kFeedForward, scope::kSwiglu}))});
    rows.push_back({run, "layer", parts.made_by(layer)});
    rows.push_back({run, "step", parts.made_by("")});
  }
  Table table =
      table_of("saved_ways", "What is kept from forward for backward", saved_fields(), rows);
  table.notes = {
      "by the programs, without a run; weights and inputs are alive anyway and not counted"};
  return table;
}

}  // namespace tracestep
