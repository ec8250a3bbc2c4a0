// The program `tracestep` as a function, for programs of one's own that add ops or devices to it.
#pragma once

namespace tracestep::cli {

// Runs the command of this command line, with all ops and devices of this build and those that were
// registered before. Turns what it throws into a message. Returns the exit status. Threads that are
// started before it do not leave signals to it.
int run_program(int argc, char** argv);

}  // namespace tracestep::cli
