"""The sandbox's child process: it runs one program behind the isolation layers.

`__main__` is the script that `podium.workers.sandbox` starts; it loads this package alone, with the
standard library only: the program's memory is a copy of this process.
"""
