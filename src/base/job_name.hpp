// The name of a job in the names and labels of its metrics and histories: the same on all ranks of the job, and another
// one in a job that runs at the same time. It is made of what ranks share, without a message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

/// The name of the job that this process belongs to: GRADWIRE_JOB; or the name of the file by which processes join the
/// job; or Slurm's number of the job and what launched_job() says; or, for a process that no launcher started, its
/// host, the time and the number of the process.
[[nodiscard]] std::string job_name();

/// The same for a job that this process starts by `gradwire run`, and whose ranks get the name as GRADWIRE_JOB.
/// `join_file`: the absolute name of the file by which processes join it; empty: none can.
[[nodiscard]] std::string name_of_started_job(const std::string& join_file);

/// The text as it can stand in the name of a file: letters, digits, '.', '_' and '-', at most 64; '_' replaces others.
[[nodiscard]] std::string as_job_name(std::string_view text);

}  // namespace gradwire
