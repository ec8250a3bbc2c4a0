#include "runtime/added_rows.h"

#include <cstddef>

#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

std::int64_t bytes_of(const OperandSpec& x) {
  return x.shape.product() * static_cast<std::int64_t>(size_of(x.dtype));
}

// Returns the spec of a dense tensor that has the rows of all these tensors.
OperandSpec joined(std::span<const OperandSpec> tensors) {
  OperandSpec out = tensors.front();
  out.shape[0] = 0;
  for (const OperandSpec& x : tensors) out.shape[0] += x.shape[0];
  return out;
}

void* later(void* address, std::int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<std::byte*>(address) + bytes;
}

class AddedRows final : public PreparedKernel {
 public:
  AddedRows(const KernelSpec& spec, const PreparesSum& prepare)
      : spec_(spec),
        sum_(spec.op->name == "matmul_add_rows" ? find_op("matmul_add") : *spec.op),
        first_addend_(spec.inputs.size() - spec.outputs.size()) {
    const OperandSpec& a = spec.inputs[0];
    const bool may_transpose = spec.op->find_attr("transpose_a") != nullptr;
    const int rows = may_transpose && spec.attrs.flag("transpose_a") ? 1 : 0;
    std::int64_t row = 0;
    for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
      const OperandSpec& c = spec.inputs[first_addend_ + i];
      OperandSpec part = a;
      part.shape[rows] = c.shape[0];
      const std::int64_t offset =
          row * a.strides[rows] * static_cast<std::int64_t>(size_of(a.dtype));
      part.alignment = alignment_at(a.alignment, offset);
      offsets_.push_back(offset);
      each_.push_back(prepare(sum_of(part, c, spec.outputs[i])));
      row += c.shape[0];
    }
    const std::span addends = std::span(spec.inputs).subspan(first_addend_);
    if (row > 0) one_ = prepare(sum_of(a, joined(addends), joined(spec.outputs)));
  }

  void launch(const LaunchOperands& at, const LaunchContext& context) override {
    const auto addends = at.inputs.subspan(first_addend_);
    const auto of_one = at.inputs.first(first_addend_ + 1);
    std::vector<void*> operands(of_one.begin(), of_one.end());
    const auto launch = [&](PreparedKernel& kernel, std::int64_t offset, std::size_t i) {
      operands.front() = later(at.inputs[0], offset);
      operands.back() = addends[i];
      kernel.launch({operands, at.outputs.subspan(i, 1), at.workspace}, context);
    };
    if (one_ != nullptr && follow(addends) && follow(at.outputs)) return launch(*one_, 0, 0);
    for (std::size_t i = 0; i < each_.size(); ++i) {
      const bool is_read = at.outputs[i] != nullptr;
      if (is_read) launch(*each_[i], offsets_[i], i);
    }
  }

  void tune(Allocator& memory) override {
    if (one_ != nullptr) one_->tune(memory);
  }

 private:
  KernelSpec sum_of(const OperandSpec& a, const OperandSpec& c, const OperandSpec& y) const {
    KernelSpec out{&sum_, spec_.attrs, spec_.inputs, {y}, spec_.workspace_bytes};
    out.inputs.resize(first_addend_ + 1);
    out.inputs.front() = a;
    out.inputs.back() = c;
    return out;
  }

  // True if the tensors at these addresses follow one another without a gap.
  bool follow(std::span<void* const> tensors) const {
    for (std::size_t i = 0; i + 1 < tensors.size(); ++i) {
      if (tensors[i] == nullptr || tensors[i + 1] != later(tensors[i], bytes_of(spec_.outputs[i])))
        return false;
    }
    return true;
  }

  const KernelSpec spec_;
  const OpDef& sum_;
  const std::size_t first_addend_;
  std::vector<std::int64_t> offsets_;  // in bytes, of the rows of a
  std::vector<std::unique_ptr<PreparedKernel>> each_;
  std::unique_ptr<PreparedKernel> one_;
};

}  // namespace

std::unique_ptr<PreparedKernel> prepare_added_rows(const KernelSpec& spec,
                                                   const PreparesSum& prepare) {
  return std::make_unique<AddedRows>(spec, prepare);
}

}  // namespace tracestep
