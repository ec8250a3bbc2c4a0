#include "cli/command.h"

int main(int argc, char** argv) {
  return tracestep::cli::run_program(argc, argv);
}
