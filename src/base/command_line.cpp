#include "base/command_line.hpp"

#include <fstream>

namespace gradwire {

std::vector<std::string> own_command_line(std::size_t most) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; words.size() < most && std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  return words;
}

}  // namespace gradwire
