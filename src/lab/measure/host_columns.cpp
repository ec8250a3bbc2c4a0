#include "lab/measure/row_facts.h"

namespace tracestep {

Fields<HostAround> host_columns() {
  using H = const HostAround&;
  return {{data_only(structured_column(
               "host_before", "load, governor and CPU clocks of the host before the warm-up")),
           [](H h) { return to_json(h.before); }},
          {data_only(structured_column("host_after", "the same after the timed steps")),
           [](H h) { return to_json(h.after); }},
          {data_only(real_column("others_cores", "", "cores", 2,
                                 "CPU time that others took meanwhile, other machines of this "
                                 "host included, over the time that passed; empty below half a "
                                 "second")),
           [](H h) { return or_null(others_cores(h.before, h.after)); }}};
}

}  // namespace tracestep
