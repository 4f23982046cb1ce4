#!/bin/bash
#SBATCH --ntasks 2 --time 5
exec gradwire run --codec auto --report "$PWD/report.json" -- srun --mpi=pmix 01_loop
