#include "cli/key_options.hpp"

#include <vector>

namespace gradwire::cli {

KeyCommands::KeyCommands(CLI::App& app)
    : key_(app.add_subcommand("key", "Make and examine the key of a job")),
      new_(key_->add_subcommand("new",
                                "Write a new key to a file that only this user may read: gradwire key new job.key")),
      derive_(key_->add_subcommand("derive",
                                   "Derive a key with fewer rights: gradwire key derive observe job.key metrics.key")),
      check_(key_->add_subcommand(
          "check", "Print the check value of a key, to compare the files of hosts: gradwire key check job.key")) {
  key_->require_subcommand(1);
  new_->add_option("file", file_, "file, which must not exist")->type_name("FILE")->required();
  check_->add_option("file", file_, "file with a key")->type_name("FILE")->required();
  derive_->add_option("right", options_.right, "what the derived key is for")
      ->check(CLI::IsMember(std::vector<std::string>{"join", "observe"}))
      ->required();
  derive_->add_option("file", options_.file, "file with the job's key")->type_name("FILE")->required();
  derive_->add_option("output", options_.output, "file for the derived key, which must not exist")
      ->type_name("FILE")
      ->required();
}

int KeyCommands::run(std::ostream& out) const {
  if (*new_) {
    return key_new(file_, out);
  }
  return *derive_ ? key_derive(options_, out) : key_check(file_, out);
}

}  // namespace gradwire::cli
