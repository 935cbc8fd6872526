"""The sandbox's child process: it runs one program behind the isolation layers.

__main__      the script that `podium.workers.sandbox` starts; it loads this package alone main
the request, the runs and the results isolation     which layers can be built; putting a process
behind them namespaces    users, processes, network and mounts of the program's own seccomp
the filter of system calls kernel        system calls that Python lacks processes     start a
process behind the layers, watch it, kill all that it started program       be the program, for one
input remote_check  a check in another process, which calls the program local_check   a check in the
program's own process, with a canary

Standard library only: the program's memory is a copy of this process.
"""
