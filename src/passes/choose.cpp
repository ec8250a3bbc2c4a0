#include "passes/form_passes.h"

#include "ir/rewrite.h"

namespace tracestep {

Program choose(const Program& program, const std::map<std::string, std::string>& forms) {
  Rewriter r(program, "choose");
  for (const Node& node : program.nodes) {
    const auto wanted = forms.find(node.op->name);
    if (wanted == forms.end()) {
      r.copy(node);
      continue;
    }
    const OpForm* form = node.op->find_form(wanted->second);
    if (form == nullptr) {
      fail_usage("choose", "{} has no form '{}'", node.op->name, wanted->second);
    }
    const auto guard = r.from(node);
    const std::vector<Val> inputs = r.inputs(node);
    r.replace(node, form->expand({r.builder(), node.attrs, inputs, {}, {}, {}}));
  }
  return r.finish();
}

}  // namespace tracestep
