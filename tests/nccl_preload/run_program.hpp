// Runs a program with stdout and stderr apart, and reads the report that the shim leaves.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace gradwire::test {

struct Outcome {
  int status = -1;
  std::string out, err;
};

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// A folder of its own that goes away with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradwire-nccl-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make " + name);
    }
    path = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path path;
};

/// `environment` as in a shell ("A=1 B=2"), `command` a program and its arguments. Ends after a minute.
inline Outcome run_program(const std::string& environment, const std::string& command) {
  const ScratchFolder scratch;
  const std::string out = (scratch.path / "out").string(), err = (scratch.path / "err").string();
  const int status =
      std::system(("env " + environment + " timeout -k 5 60 " + command + " >" + out + " 2>" + err).c_str());
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_text(out),
          .err = read_text(err)};
}

}  // namespace gradwire::test
