// For tools/soak/safetensors_headers.py: reads paths, one per line, and answers each with a line,
// "accept" or "refuse" and why.
#include <iostream>
#include <string>

#include "base/utf8.h"
#include "weights/safetensors.h"

int main() {
  for (std::string path; std::getline(std::cin, path);) {
    try {
      const tracestep::SafetensorsFile file(path);
      std::cout << "accept" << std::endl;
    } catch (const tracestep::Error& e) {
      std::cout << "refuse " << tracestep::message_line(e.message()) << std::endl;
    }
  }
}
