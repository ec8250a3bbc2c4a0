// Collectives are ops like any other; they run on the communicator of the device's process group.
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {

void register_collectives() {
  register_op({.name = "all_reduce",
               .doc = "Sum (or mean) over all ranks; every rank gets the result.",
               .inputs = {"x"},
               .outputs = {"y"},
               .attrs = {{"op", AttrKind::kText, AttrValue(std::string("sum")), "sum or mean"}},
               .kernel_class = KernelClass::kCollective,
               .precision_class = PrecisionClass::kKeep,
               .infer =
                   [](const OpCall& c) {
                     const std::string& op = c.attrs.text("op");
                     if (op != "sum" && op != "mean") {
                       fail_usage(c.op.name, "op '{}' is unknown; sum or mean", op);
                     }
                     return rules::same_floating(c);
                   },
               .accepts = rules::contiguous,
               .donates = {{0, 0}}});
}

}  // namespace tracestep::ops
